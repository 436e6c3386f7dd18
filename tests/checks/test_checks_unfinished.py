"""How many requests a rank still has, by what its server and its engine say."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from tests.support.etcd import free_port
from yrnode.checks.unfinished import unfinished

BUSY = b'vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting{engine="0"} 1.0\n'
IDLE = b'vllm:num_requests_running{engine="0"} 0.0\nvllm:num_requests_waiting{engine="0"} 0.0\n'


@pytest.mark.parametrize(
    ("load", "page", "expected"),
    [
        (0, IDLE, 0),
        (1, IDLE, 1),
        # a server that does not count, and one that is not to be counted on alone
        (0, BUSY, 3),
        (None, BUSY, 3),
        (None, IDLE, 0),
        (4, None, 4),
        (0, None, None),
        ("many", IDLE, None),
    ],
)
async def test_what_is_said(load: object, page: bytes | None, expected: int | None) -> None:
    async def loads(_: web.Request) -> web.Response:
        await asyncio.sleep(0)
        return web.json_response({"server_load": load}, status=404 if load is None else 200)

    async def metrics(_: web.Request) -> web.Response:
        await asyncio.sleep(0)
        return web.Response(body=page or b"", status=404 if page is None else 200)

    app, port = web.Application(), free_port()
    app.router.add_get("/load", loads)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    async with aiohttp.ClientSession() as http:
        assert await unfinished(http, f"http://127.0.0.1:{port}", 2.0) == expected
    await runner.cleanup()


async def test_nothing_listens_and_nothing_answers() -> None:
    async with aiohttp.ClientSession() as http:
        assert await unfinished(http, f"http://127.0.0.1:{free_port()}", 2.0) == 0
        port = free_port()
        server = await asyncio.start_server(lambda _, w: asyncio.sleep(60), "127.0.0.1", port)
        assert await unfinished(http, f"http://127.0.0.1:{port}", 0.2) is None
        server.close()
