"""How each router is told: what is sent, and what is made of answers that are none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.etcd import free_port
from yrnode.components.routers.ascend_proxy import AscendProxy
from yrnode.components.routers.base import RouterAway, RouterClient, RouterError
from yrnode.components.routers.kinds import client_of
from yrnode.components.routers.vllm_router import VllmRouter
from yrnode.config.cluster import Cluster
from yrnode.model.routing import Role, Route

Make = Callable[[aiohttp.ClientSession, str], RouterClient]
PREFILL = Route("rank/p/0", "p", "n0", Role.PREFILL, "http://10.0.0.1:6600")
DECODE = Route("rank/d/0", "d", "n1", Role.DECODE, "http://10.0.0.2:6700")
REGULAR = Route("rank/s/0", "s", "n1", Role.REGULAR, "https://10.0.0.2:6700/x")
LISTED = {"current_prefill_instances": ["10.0.0.1:6600"], "current_decode_instances": ["10.0.0.2:6700"]}


def proxy(http: aiohttp.ClientSession, url: str) -> RouterClient:
    return AscendProxy(http, url)


def vllm_router(http: aiohttp.ClientSession, url: str) -> RouterClient:
    return VllmRouter(http, url, {"p": "m", "d": "m"})


class Server:
    """Answers everything with `answer` and keeps what it was asked; `hang`: never."""

    def __init__(self, answer: Any, status: int = 200, hang: bool = False) -> None:
        self.answer, self.status, self.hang = answer, status, hang
        self.asked: list[tuple[str, str, Any]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path_qs, body))
        while self.hang:
            await asyncio.sleep(0.05)
        if isinstance(self.answer, str):
            return web.Response(text=self.answer, status=self.status)
        return web.json_response(self.answer, status=self.status)


@asynccontextmanager
async def asking(server: Server, make: Make) -> AsyncIterator[RouterClient]:
    app, port = web.Application(), free_port()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with aiohttp.ClientSession() as http:
        yield make(http, f"http://127.0.0.1:{port}")
    await runner.cleanup()


async def test_the_sample_proxy_is_told_by_role_and_lists_what_it_has() -> None:
    server = Server({"message": "done", **LISTED})
    async with asking(server, proxy) as client:
        assert await client.listed(2.0) == {PREFILL.url, DECODE.url}
        await client.add(DECODE, 2.0)
        await client.remove(PREFILL, 2.0)
    assert server.asked == [
        ("POST", "/instances/add", {"type": "prefill", "instances": []}),
        ("POST", "/instances/add", {"type": "decode", "instances": ["10.0.0.2:6700"]}),
        ("POST", "/instances/remove", {"type": "prefill", "instances": ["10.0.0.1:6600"]}),
    ]


async def test_vllm_router_is_told_of_roles_where_it_has_them() -> None:
    server = Server({"urls": [PREFILL.url]})
    async with asking(server, vllm_router) as client:
        assert await client.listed(2.0) == {PREFILL.url}
        await client.add(PREFILL, 2.0)
        await client.add(DECODE, 2.0)
        server.answer = "Successfully added worker"
        await client.add(REGULAR, 2.0)
        await client.remove(REGULAR, 2.0)
    query = "url=https://10.0.0.2:6700/x"
    assert server.asked == [
        ("GET", "/list_workers", None),
        ("POST", "/workers", {"url": PREFILL.url, "worker_type": "prefill", "model_id": "m"}),
        ("POST", "/workers", {"url": DECODE.url, "worker_type": "decode", "model_id": "m"}),
        ("POST", f"/add_worker?{query}", None),
        ("POST", f"/remove_worker?{query}", None),
    ]


@pytest.mark.parametrize("make", [proxy, vllm_router])
@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        ("Not Found", 404, "HTTP 404 Not Found"),
        ({"error": "no such type"}, 200, "no such type"),
        ([], 200, ": []"),
        ("<html>", 200, "<html>"),
        ({"detail": "x" * 9000}, 500, "HTTP 500"),
    ],
)
async def test_what_is_no_answer(make: Make, answer: Any, status: int, says: str) -> None:
    async with asking(Server(answer, status), make) as client:
        with pytest.raises(RouterError) as e:
            await client.listed(2.0)
    assert says in str(e.value)
    assert len(str(e.value)) < 300
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("make", [proxy, vllm_router])
async def test_one_that_never_answers_is_waited_for_as_long_as_said(make: Make) -> None:
    async with asking(Server("", hang=True), make) as client:
        for ask in (client.listed(0.3), client.add(DECODE, 0.3), client.remove(DECODE, 0.3)):
            began = time.monotonic()
            with pytest.raises(RouterError, match=r"no answer within 0\.3 s"):
                await ask
            assert time.monotonic() - began < 3


@pytest.mark.parametrize("make", [proxy, vllm_router])
async def test_where_nothing_listens_nobody_gets_requests(make: Make) -> None:
    async with aiohttp.ClientSession() as http:
        client = make(http, f"http://127.0.0.1:{free_port()}")
        with pytest.raises(RouterAway, match="refused"):
            await client.remove(DECODE, 2.0)


async def test_the_client_is_that_of_the_file() -> None:
    def made(**router: Any) -> RouterClient | None:
        group = {"model": "m", "ranks": {"n": 1}, "args": {"served-model-name": "x"}}
        file = {"cluster": "c", "nodes": {"n": {"address": "10.0.0.1"}}, "groups": {"p": group, "d": group}}
        if router:
            file["router"] = {"node": "n", "prefill": "p", "decode": "d", **router}
        return client_of(Cluster.model_validate(file), http)

    async with aiohttp.ClientSession() as http:
        assert isinstance(made(kind="ascend-proxy", script="/p.py"), AscendProxy)
        found = made(kind="vllm-router")
        assert isinstance(found, VllmRouter)
        assert found._models == {"p": "x", "d": "x"}
        assert made(kind="command", argv="x") is None
        assert made() is None
