"""etcd with certificates, with users, and with both, for every backend."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.store.conftest import Connect, events_until, put_when_up
from tests.support.certs import Certs
from tests.support.etcd import Etcd, start_etcd
from tests.support.users import PASSWORD, enable_auth
from yrnode.store import KeptLease, Put, StoreRefused, StoreUnavailable, mod_is
from yrnode.store.credentials import NONE, Credentials

NODE = Credentials(user="node", password=PASSWORD)
OTHER = "/other/"


def own(certs: Certs, name: str = "client", user: Credentials = NONE) -> Credentials:
    return Credentials(certs.ca, certs.cert(name), certs.key(name), user.user, user.password)


async def everything(connect: Connect, etcd: Etcd, credentials: Credentials, prefix: str) -> None:
    """Calls of each kind, with a watch and a lease."""
    store = connect(etcd.url, credentials=credentials)

    async def put(lease: int) -> None:
        await store.put(prefix + "leased", b"1", lease=lease)

    async with store.watch(prefix, await store.list(prefix)) as watch, KeptLease(store, 5, put):
        await events_until(watch, prefix + "leased")
        revision = await store.put(prefix + "a", b"1")
        assert (await store.txn([mod_is(prefix + "a", revision)], [Put(prefix + "b", b"2")])).succeeded
        await events_until(watch, prefix + "b")
        assert (await store.status()).version.startswith("3.")
        assert await store.delete_prefix(prefix) == 3


# Certificates


async def test_each_side_proves_itself(connect: Connect, tls_etcd: Etcd, certs: Certs, prefix: str) -> None:
    await everything(connect, tls_etcd, own(certs), prefix)


@pytest.mark.parametrize("whose", ["nobody's", "a stranger's", "a stranger's CA", "plain"])
async def test_who_does_not_prove_himself_gets_no_answer(
    connect: Connect, tls_etcd: Etcd, certs: Certs, whose: str
) -> None:
    credentials = {
        "nobody's": Credentials(certs.ca),
        "a stranger's": own(certs, "stranger"),
        "a stranger's CA": Credentials(certs.cert("other"), certs.cert("client"), certs.key("client")),
        "plain": NONE,
    }[whose]
    url = tls_etcd.url.replace("https", "http") if whose == "plain" else tls_etcd.url
    with pytest.raises(StoreUnavailable) as caught:
        await connect(url, credentials=credentials).put("k", b"1")
    assert url in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_etcd_must_be_the_one_that_its_certificate_names(
    connect: Connect, tls_etcd: Etcd, certs: Certs
) -> None:
    # the same etcd, by a name that is not in its certificate
    with pytest.raises(StoreUnavailable):
        await connect(tls_etcd.url.replace("127.0.0.1", "localhost"), credentials=own(certs)).get("k")


# Users


async def test_a_user_with_the_rights_that_yrnode_needs(connect: Connect, own_etcd: Etcd, prefix: str) -> None:
    enable_auth(own_etcd.call, prefix, more=["guest"])
    await everything(connect, own_etcd, NODE, prefix)
    for credentials, text in (
        (Credentials(user="guest", password=PASSWORD), "permission denied"),
        (Credentials(user="node", password="wrong"), "invalid user ID or password"),
        (NONE, "user name is empty"),
    ):
        with pytest.raises(StoreRefused, match=text) as caught:
            await connect(own_etcd.url, credentials=credentials).put(prefix, b"1")
        assert PASSWORD not in str(caught.value)
    with pytest.raises(StoreRefused, match="permission denied"):
        await connect(own_etcd.url, credentials=NODE).get(OTHER)


async def test_auth_that_is_enabled_under_way(
    connect: Connect, own_etcd: Etcd, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = connect(own_etcd.url, credentials=NODE)
    async with store.watch(prefix, await store.list(prefix)) as watch:
        await store.put(prefix + "a", b"1")
        await store.put(prefix + "a", b"2")
        assert [r.message for r in caplog.records if "not enabled" in r.message] == [
            f"etcd {own_etcd.url} asks nobody who he is: its auth is not enabled"
        ]
        enable_auth(own_etcd.call, prefix)
        await store.put(prefix + "b", b"1")
        await events_until(watch, prefix + "b")


async def test_a_token_that_has_run_out_is_replaced(connect: Connect, own_etcd: Etcd, prefix: str) -> None:
    own_etcd.argv += ["--auth-token-ttl=1"]
    own_etcd.restart()
    enable_auth(own_etcd.call, prefix)
    store = connect(own_etcd.url, credentials=NODE)
    async with store.watch(prefix, await store.list(prefix)) as watch:
        await store.put(prefix + "a", b"1")
        await events_until(watch, prefix + "a")
        # a restart forgets every token too, and the watch begins again by a new one
        own_etcd.restart(wait=False)
        revision = await put_when_up(store, prefix + "b", b"2")
        await events_until(watch, prefix + "b")
    # each use lengthens its life, so nothing is asked meanwhile
    token, deadline = store._caller._token, time.monotonic() + 30  # type: ignore[attr-defined]
    while store._caller._token == token:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        await asyncio.sleep(2.5)
        assert (await store.txn([mod_is(prefix + "b", revision)], [Put(prefix + "c", b"3")])).succeeded


# Both


async def test_a_certificate_and_a_user(
    connect: Connect, etcd_binary: Path, tmp_path: Path, certs: Certs, prefix: str
) -> None:
    with start_etcd(tmp_path, etcd_binary, extra=["--client-cert-auth"], certs=certs) as etcd:
        enable_auth(etcd.call, prefix)
        await everything(connect, etcd, own(certs, user=NODE), prefix)
