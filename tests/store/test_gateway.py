"""What only the HTTP client must do: tell etcd from strangers, use its endpoints, log in, mind no proxy."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.store.conftest import FAST, events_until, put_when_up, until
from tests.support.etcd import Etcd, free_port, start_etcd
from tests.support.proxy import proxy_to
from yrnode.store import (
    LeaseGone,
    Put,
    RevisionGone,
    Store,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    absent,
    mod_is,
)
from yrnode.store.credentials import Credentials
from yrnode.store.gateway import EtcdGateway


class Stranger:
    """A web server that gives one answer to everything, and remembers what it was asked."""

    def __init__(self, status: int, kind: str, body: str) -> None:
        self.status, self.kind, self.body = status, kind, body
        self.asked: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        headers = {"Location": self.url} if 300 <= self.status < 400 else {}
        return web.Response(status=self.status, content_type=self.kind, text=self.body, headers=headers)


@asynccontextmanager
async def stranger(status: int, kind: str, body: str) -> AsyncIterator[Stranger]:
    peer = Stranger(status, kind, body)
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", peer.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    peer.url = f"http://127.0.0.1:{port}"
    try:
        yield peer
    finally:
        await runner.cleanup()


@asynccontextmanager
async def gateway(*endpoints: str, **options: object) -> AsyncIterator[EtcdGateway]:
    store = EtcdGateway(endpoints, **{**FAST, **options})  # type: ignore[arg-type]
    try:
        yield store
    finally:
        await store.close()


CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "get": lambda store: store.get("k"),
    "list": lambda store: store.list("k"),
    "put": lambda store: store.put("k", b"v"),
    "delete": lambda store: store.delete("k"),
    "delete_prefix": lambda store: store.delete_prefix("k"),
    "txn": lambda store: store.txn([absent("k")], [Put("k", b"v")]),
    "grant": lambda store: store.lease_grant(5),
    "keepalive": lambda store: store.lease_keepalive(7),
    "revoke": lambda store: store.lease_revoke(7),
    "status": lambda store: store.status(),
    "stream": lambda store: store.stream("k", 1),
}

LESSOR = '{"error":"lease: not a primary lessor","message":"lease: not a primary lessor","code":2}'
MAY_HEAL = {
    "500 text": (500, "text/plain", "Internal Server Error"),
    "503 html": (503, "text/html", "<html><body>Service\nUnavailable</body></html>"),
    "503 json": (
        503,
        "application/json",
        '{"error":"no leader","message":"etcdserver: no leader","code":14}',
    ),
    "504 json": (504, "application/json", '{"error":"etcdserver: request timed out","code":14}'),
    "500 unknown code": (500, "application/json", LESSOR),
    "400 unknown code": (400, "application/json", LESSOR),
    "400 text": (400, "text/plain", "CommonName of client sending a request against gateway will be ignored"),
    "404 text": (404, "text/plain", "404 page not found"),
    "403 html": (403, "text/html", "<html>blocked by your company</html>"),
    "500 with a refusal's code": (500, "application/json", '{"message":"permission denied","code":7}'),
    "500 other loss of data": (500, "application/json", '{"message":"unrecoverable data loss","code":15}'),
    "429 too many": (429, "application/json", '{"message":"etcdserver: too many requests","code":8}'),
    "302": (302, "text/html", "moved"),
    "200 html": (200, "text/html", "<html>log in to the network</html>"),
    "200 nothing": (200, "application/json", ""),
    "200 empty object": (200, "application/json", "{}"),
    "200 other json": (200, "application/json", '{"status": "ok"}'),
    "200 list": (200, "application/json", "[1]"),
    "200 odd header": (200, "application/json", '{"header": {}, "kvs": 3}'),
    "200 error in a stream": (200, "application/json", '{"error":{"grpc_code":14,"message":"not now"}}'),
    "200 half": (200, "application/json", '{"header": {"revision": "5"'),
}


@pytest.mark.parametrize("answer", MAY_HEAL)
async def test_what_is_not_etcds_own_refusal_may_heal(answer: str) -> None:
    async with stranger(*MAY_HEAL[answer]) as peer, gateway(peer.url) as store:
        for name, call in CALLS.items():
            peer.asked.clear()
            if name in ("delete", "delete_prefix", "keepalive") and answer == "200 odd header":
                continue  # a count or TTL of zero is all that such an answer of etcd would hold
            with pytest.raises(StoreUnavailable) as caught:
                await call(store)
            assert len(peer.asked) == 1, f"{name} was repeated"
            assert peer.url in str(caught.value)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "text", "kind"),
    [
        (403, 7, "etcdserver: permission denied", StoreRefused),
        (429, 8, "etcdserver: mvcc: database space exceeded", StoreRefused),
        (400, 3, "etcdserver: key is not provided", StoreRefused),
        (500, 15, "etcdserver: corrupt cluster", StoreRefused),
        (401, 16, "etcdserver: invalid auth token", StoreRefused),
        (400, 11, "etcdserver: mvcc: required revision has been compacted", RevisionGone),
        (404, 5, "etcdserver: requested lease not found", LeaseGone),
    ],
)
async def test_etcds_own_refusals(status: int, code: int, text: str, kind: type[StoreError]) -> None:
    body = f'{{"error": "{text}", "message": "{text}", "code": {code}}}'
    async with stranger(status, "application/json", body) as peer, gateway(peer.url, peer.url) as store:
        with pytest.raises(kind) as caught:
            await store.txn([absent("k")])
        assert str(caught.value) == f"etcd {peer.url} kv/txn: {text}"
        assert caught.value.code == code
        assert peer.asked == ["/v3/kv/txn"]


async def test_a_lost_answer_is_unknown_and_never_repeated(etcd: Etcd, prefix: str) -> None:
    async with (
        proxy_to(etcd.url) as proxy,
        gateway(proxy.url, etcd.url) as store,
        gateway(etcd.url) as direct,
    ):
        await store.get(prefix)
        proxy.delay_s = 30
        for write in (store.put(prefix, b"2"), store.txn([absent(prefix + "n")], [Put(prefix + "n", b"1")])):
            await direct.delete(prefix + "n")
            with pytest.raises(StoreUnavailable, match="no answer in time") as caught:
                await write
            assert not caught.value.unsent
            store._caller.avoid(etcd.url)
        for key in (prefix, prefix + "n"):
            kv = await direct.get(key)
            assert kv is not None
            assert kv.version == 1


# Endpoints


async def test_reads_and_renewals_go_to_the_next_endpoint(etcd: Etcd, prefix: str) -> None:
    async with proxy_to(etcd.url) as silent:
        silent.hold()
        dead = f"http://127.0.0.1:{free_port()}"
        async with gateway(dead, silent.url, etcd.url) as store:
            assert await store.get(prefix) is None
            assert silent.connections == 1
            lease, _ = await store.lease_grant(5)
            assert await store.lease_keepalive(lease) > 0
            assert silent.connections == 1, "the endpoint that answered is asked first"
            await store.lease_revoke(lease)


async def test_a_write_goes_to_the_next_endpoint_only_if_it_was_not_sent(etcd: Etcd, prefix: str) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with gateway(dead, etcd.url) as store:
        assert (await store.txn([absent(prefix)], [Put(prefix, b"1")])).succeeded
    async with stranger(503, "text/html", "busy") as busy, gateway(busy.url, etcd.url) as store:
        with pytest.raises(StoreUnavailable, match="busy"):
            await store.put(prefix, b"2")
        kv = await store.get(prefix)
        assert kv is not None
        assert (kv.value, kv.version) == (b"1", 1)


async def test_all_endpoints_together_stay_within_the_timeout(etcd: Etcd) -> None:
    async with proxy_to(etcd.url) as one, proxy_to(etcd.url) as two:
        one.hold()
        two.hold()
        async with gateway(one.url, two.url) as store:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await store.get("k")
            assert 1.4 < time.monotonic() - begun < 4
            assert one.connections == two.connections == 1


async def test_a_watch_moves_to_the_next_endpoint(etcd: Etcd, prefix: str) -> None:
    async with (
        proxy_to(etcd.url) as first,
        proxy_to(etcd.url) as second,
        gateway(first.url, second.url) as store,
        gateway(etcd.url) as direct,
    ):
        watch = store.watch(prefix, await store.list(prefix))
        watch.start()
        await until(lambda: watch.unbroken_since)
        assert second.connections == 0
        first.hold()
        await direct.put(prefix, b"1")
        await events_until(watch, prefix, 5)
        assert second.connections > 0


@pytest.mark.parametrize("endpoints", [(), ("127.0.0.1:2379",), ("unix:///run/etcd",)])
def test_endpoints_that_cannot_be(endpoints: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="etcd endpoint"):
        EtcdGateway(endpoints)


# Users


async def test_user_and_password(own_etcd: Etcd, prefix: str) -> None:
    for path, body in (
        ("auth/user/add", {"name": "root", "password": "secret"}),
        ("auth/user/add", {"name": "node", "password": "secret"}),
        ("auth/role/add", {"name": "root"}),
        ("auth/role/add", {"name": "nodes"}),
        ("auth/user/grant", {"user": "root", "role": "root"}),
        ("auth/user/grant", {"user": "node", "role": "nodes"}),
        ("auth/enable", {}),
    ):
        own_etcd.call(path, body)
    async with (
        gateway(own_etcd.url, credentials=Credentials(user="root", password="secret")) as store,
        gateway(own_etcd.url, credentials=Credentials(user="node", password="secret")) as stranger_inside,
        gateway(own_etcd.url, credentials=Credentials(user="root", password="wrong")) as wrong,
        gateway(own_etcd.url) as nobody,
    ):
        watch = store.watch(prefix, await store.list(prefix))
        await store.put(prefix + "a", b"1")
        await events_until(watch, prefix + "a")
        with pytest.raises(StoreRefused, match="permission denied"):
            await stranger_inside.get(prefix)
        with pytest.raises(StoreRefused, match="invalid user ID or password"):
            await wrong.get(prefix)
        with pytest.raises(StoreRefused, match="user name is empty"):
            await nobody.get(prefix)

        own_etcd.restart(wait=False)  # forgets every token, as time does
        revision = await put_when_up(store, prefix + "b", b"2")
        store._caller._token = "stale.1"
        assert (await store.txn([mod_is(prefix + "b", revision)], [Put(prefix + "c", b"3")])).succeeded
        await events_until(watch, prefix + "c")


# The environment


@pytest.mark.parametrize("answer", [(503, "text/plain", "no route"), (200, "text/html", "<html>hello</html>")])
async def test_a_proxy_of_the_environment_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, etcd: Etcd, prefix: str, answer: tuple[int, str, str]
) -> None:
    async with stranger(*answer) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.upper(), proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with gateway(etcd.url) as store, store.watch(prefix, await store.list(prefix)) as watch:
            await store.put(prefix, b"1")
            await events_until(watch, prefix)
        assert proxy.asked == []


def test_importing_the_room_loads_no_http_client() -> None:
    code = "import sys, yrnode.store; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0


def test_etcd_is_gone_when_a_test_fails(etcd_binary: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyError), start_etcd(tmp_path, etcd_binary) as etcd:  # noqa: PT012
        process = etcd.process
        etcd.freeze()
        raise KeyError
    assert process is not None
    assert process.returncode == -9
    with pytest.raises(OSError, match="refused"):
        etcd.call("kv/range", {"key": "AA=="})
