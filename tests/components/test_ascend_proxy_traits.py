"""What a supervisor meets in vllm-ascend's sample proxy: of the stand-in, and of the real one where it is given.

YRNODE_ASCEND_PROXY: the real script, as it is after v0.18; YRNODE_ASCEND_PYTHON: an interpreter with what it imports.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.etcd import free_ports
from yrnode.components.routers.ascend_proxy import AscendProxy
from yrnode.components.routers.base import RouterError
from yrnode.model.routing import Role, Route

PROXY = os.environ.get("YRNODE_ASCEND_PROXY") or Path(__file__).parents[1] / "support" / "ascend_proxy.py"
PYTHON = os.environ.get("YRNODE_ASCEND_PYTHON", sys.executable)
HOST = "127.0.0.2"
DONE = {"choices": [{"text": "x", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}


class Lab:
    """The proxy before two prefill servers and two decode servers of which only the first of each runs."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        port, *ports = free_ports(5)
        self.http, self.url = http, f"http://{HOST}:{port}"
        self.client = AscendProxy(http, self.url)
        roles = [Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE]
        self.routes = [
            Route(f"r{p}", r.value, "n", r, f"http://{HOST}:{p}") for r, p in zip(roles, ports, strict=True)
        ]
        self.p, self.dead_p, self.d, self.dead_d = self.routes
        self.looks, self.models_status = 0, 200
        self.release = asyncio.Event()
        self.release.set()
        self.runners: list[web.AppRunner] = []
        hosts = [HOST, HOST]
        words = ["--host", HOST, "--port", port, "--prefiller-hosts", *hosts, "--prefiller-ports", *ports[:2]]
        words += ["--decoder-hosts", *hosts, "--decoder-ports", *ports[2:], "--waiting-retry-interval", "0.3"]
        self.process = subprocess.Popen(
            [PYTHON, str(PROXY), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    async def start(self) -> None:
        for route in (self.p, self.d):
            await self.serve(route)
        await self.until(self.lists, {r.url for r in self.routes})

    async def serve(self, route: Route) -> None:
        async def complete(_: web.Request) -> web.Response:
            await self.release.wait()
            return web.json_response(DONE)

        app = web.Application()
        app.router.add_post("/v1/completions", complete)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.runners.append(runner)
        await web.TCPSite(runner, HOST, int(route.url.rpartition(":")[2])).start()

    async def lists(self) -> set[str]:
        try:
            return set(await self.client.listed(2.0))
        except RouterError:
            return set()

    async def _models(self, _: web.Request) -> web.Response:
        self.looks += 1
        await asyncio.sleep(0)
        return web.json_response({"object": "list", "data": []}, status=self.models_status)

    async def until(self, what: Callable[[], Awaitable[set[str]]], wanted: set[str], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while (found := await what()) != wanted:
            assert time.monotonic() < deadline, (found, wanted)
            await asyncio.sleep(0.05)

    async def ask(self) -> tuple[int, bytes]:
        body = {"model": "m", "prompt": "a", "max_tokens": 1}
        async with self.http.post(f"{self.url}/v1/completions", json=body) as answer:
            return answer.status, await answer.read()

    async def close(self) -> None:
        self.release.set()
        self.process.kill()
        self.process.wait(10)
        for runner in self.runners:
            await runner.cleanup()


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        found = Lab(http)
        try:
            await found.start()
            yield found
        finally:
            await found.close()


async def test_it_counts_who_is_configured_and_asks_nobody(lab: Lab) -> None:
    async with lab.http.get(f"{lab.url}/healthcheck") as answer:
        found: dict[str, Any] = await answer.json()
    assert (found["status"], found["prefill_instances"], found["decode_instances"]) == ("ok", 2, 2)


async def test_while_it_is_idle_one_is_dropped_at_once_and_taken_when_it_looks(lab: Lab) -> None:
    await lab.client.remove(lab.d, 2.0)
    left = {r.url for r in lab.routes} - {lab.d.url}
    assert await lab.lists() == left
    await lab.client.add(lab.d, 2.0)
    await lab.until(lab.lists, left | {lab.d.url})


async def test_one_that_does_not_answer_is_forgotten_without_a_word(lab: Lab) -> None:
    await lab.client.remove(lab.dead_d, 2.0)
    left = {r.url for r in lab.routes} - {lab.dead_d.url}
    lab.models_status = 503
    await lab.serve(lab.dead_d)
    await lab.client.add(lab.dead_d, 2.0)
    seen, since = 0, time.monotonic()
    while seen < 3 or time.monotonic() - since < 1.5:
        await asyncio.sleep(0.05)
        if lab.looks != seen:
            seen, since = lab.looks, time.monotonic()
        assert seen < 10
    lab.models_status = 200
    await asyncio.sleep(1.0)
    assert (lab.looks, await lab.lists()) == (seen, left)


async def test_while_it_is_busy_one_is_set_aside_and_cannot_be_taken_back(lab: Lab) -> None:
    await lab.client.remove(lab.dead_p, 2.0)
    everybody = await lab.lists()
    lab.release.clear()
    busy = asyncio.create_task(lab.ask())
    await asyncio.sleep(0.5)
    await lab.client.remove(lab.dead_d, 2.0)
    await lab.client.add(lab.dead_d, 2.0)
    await asyncio.sleep(1.0)
    assert await lab.lists() == everybody
    lab.release.set()
    assert (await busy)[0] == 200
    await lab.until(lab.lists, everybody - {lab.dead_d.url})
    # whom it has set aside got nothing meanwhile
    assert b"choices" in (await lab.ask())[1]


async def test_a_dead_decode_server_is_an_empty_answer_and_a_dead_prefill_server_an_error(lab: Lab) -> None:
    for gone, status, body in ((lab.d, 200, b""), (lab.p, 500, None)):
        await lab.client.remove(gone, 2.0)
        found = [await lab.ask() for _ in range(3)]
        assert [s for s, _ in found] == [status] * 3
        assert body is None or [b for _, b in found] == [body] * 3


async def test_a_role_that_it_does_not_have(lab: Lab) -> None:
    route = Route("r", "g", "n", Role.REGULAR, "http://10.0.0.1:1")
    with pytest.raises(RouterError, match="not supported"):
        await lab.client.add(route, 2.0)
