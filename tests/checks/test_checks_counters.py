"""The cache counters as vLLM publishes them, and how the progress check keeps them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from tests.checks.conftest import Clock
from tests.support.etcd import free_port
from yrnode.checks import counters, progress
from yrnode.checks.base import Target, Tools
from yrnode.checks.progress import ProgressCheck
from yrnode.demo.engine.metrics import EngineMetrics, Page
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Verdict
from yrnode.policy.hits import Counts


def engine(rank: int, created: float = 1.5, **stats: float) -> EngineMetrics:
    found = EngineMetrics(rank)
    found.created, found.stats = created, stats
    return found


def page(*engines: EngineMetrics) -> bytes:
    return Page("m", list(engines)).render().encode()


A = engine(0, local_queries=100, local_hits=40, external_queries=60, external_hits=20)
B = engine(1, local_queries=10, local_hits=1, external_queries=9, external_hits=0)


def test_all_engines_together_or_each_for_itself() -> None:
    (whole,) = counters.read(page(A, B))
    assert whole is not None
    assert whole[1] == Counts(110, 41, 69, 20)
    a, b, c = counters.read(page(A, B), (0, 1, 2))
    assert a is not None
    assert b is not None
    assert (a[1], b[1], c) == (Counts(100, 40, 60, 20), Counts(10, 1, 9, 0), None)


def test_a_life_changes_with_the_process_and_with_what_began_its_counters() -> None:
    (before,) = counters.read(page(A))
    (other,) = counters.read(page(engine(0, created=2.5, **A.stats)))
    (later,) = counters.read(page(A).replace(b"process_start_time_seconds 1", b"process_start_time_seconds 2"))
    (same,) = counters.read(page(engine(0, local_queries=101)))
    assert before
    assert other
    assert later
    assert same
    assert before[0] == same[0]
    assert len({before[0], other[0], later[0]}) == 3


def test_a_page_without_counters() -> None:
    assert counters.read(b"") == [None]
    assert counters.read(b"<html>\nvllm:num_requests_running 1\n", (0, 1)) == [None, None]
    with pytest.raises(ValueError, match="float"):
        counters.read(b"vllm:prefix_cache_hits_total{} many\n")


@dataclass
class Server:
    """A rank's server: `load`, what it publishes, how often that was read, and whether it says anything at all."""

    url: str
    load: int = 0
    engines: list[EngineMetrics] = field(default_factory=list)
    read: int = 0
    broken: bool = False
    held: asyncio.Event | None = None

    async def says_load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": self.load})

    async def metrics(self, _: web.Request) -> web.Response:
        self.read += 1
        if self.held is not None:
            await self.held.wait()
        return web.Response(status=500) if self.broken else web.Response(body=page(*self.engines))


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    port = free_port()
    found = Server(f"http://127.0.0.1:{port}")
    app = web.Application()
    app.router.add_get("/load", found.says_load)
    app.router.add_get("/metrics", found.metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield found
    await runner.cleanup()


class Lab:
    def __init__(self, http: aiohttp.ClientSession, server: Server, **more: object) -> None:
        self.clock = Clock()
        self.tools = Tools(http, None, lambda: 0.0, self.clock)  # type: ignore[arg-type]
        told = {"url": server.url, "load": True, "stall_timeout_s": 180.0, **more}
        self.check = ProgressCheck(CheckSpec("progress", "progress", 2.0, 5.0, params=told), self.tools)

    async def look(self, after_s: float, instance: str = "i1") -> tuple[Verdict, str]:
        self.clock.now += after_s
        found = await self.check.probe(Target("rank/serve/0", instance, 1))
        return found.verdict, found.evidence

    def counted(self, rank: str = "rank/serve/0") -> Counts:
        newest = self.tools.hits.tracks[rank].newest
        assert newest is not None
        return newest.counts


async def test_a_busy_rank_is_read_once_a_look_and_an_idle_one_now_and_then(
    http: aiohttp.ClientSession, server: Server
) -> None:
    lab = Lab(http, server)
    server.engines = [A]
    assert await lab.look(2.0) == (Verdict.OK, "idle")
    assert (server.read, lab.counted()) == (1, Counts(100, 40, 60, 20))
    for _ in range(4):
        await lab.look(2.0)
    assert server.read == 1, "nothing is asked of it"
    await lab.look(2.0)
    assert server.read == 2, "what came and went between two looks is counted too"
    server.load = 1
    for _ in range(3):
        await lab.look(2.0)
    assert server.read == 5, "the page that is read for its movement is not read again"
    server.load, server.engines = 0, [engine(0, local_queries=200, local_hits=40)]
    await lab.look(2.0)
    assert (server.read, lab.counted().local_queries) == (6, 200)
    await lab.look(2.0)
    assert server.read == 6


async def test_a_page_that_an_idle_rank_does_not_give_is_no_evidence(
    http: aiohttp.ClientSession, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.1)
    lab = Lab(http, server)
    server.broken = True
    assert await lab.look(2.0) == (Verdict.OK, "idle")
    assert not lab.tools.hits.tracks


@pytest.mark.parametrize("load", [0, 1])
async def test_what_cannot_be_counted_changes_no_verdict(
    http: aiohttp.ClientSession, server: Server, monkeypatch: pytest.MonkeyPatch, load: int
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a page from another world")

    monkeypatch.setattr(counters, "read", broken)
    lab = Lab(http, server)
    server.load, server.engines = load, [A]
    assert await lab.look(2.0) == (Verdict.OK, "1 in flight, moving" if load else "idle")


async def test_the_count_waits_no_longer_than_the_check_may_take(http: aiohttp.ClientSession, server: Server) -> None:
    lab = Lab(http, server)
    lab.check = ProgressCheck(replace(lab.check.spec, timeout_s=progress.MARGIN_S + 0.1), lab.tools)
    server.held = asyncio.Event()
    began = time.monotonic()
    assert await lab.look(2.0) == (Verdict.OK, "idle")
    assert time.monotonic() - began < progress.PATIENCE_S
    server.held.set()


async def test_a_gauge_that_lags_behind_makes_no_idle_rank_busy(http: aiohttp.ClientSession, server: Server) -> None:
    lab = Lab(http, server, ranks=(0, 1))
    server.engines = [engine(0, running=1, local_queries=5), engine(1, local_queries=7)]
    for _ in range(3):
        assert (await lab.look(11.0))[1].endswith("idle")
    assert [lab.counted(f"rank/serve/{n}").local_queries for n in (0, 1)] == [5, 7]


async def test_another_instance_begins_anew(http: aiohttp.ClientSession, server: Server) -> None:
    lab = Lab(http, server)
    server.engines = [A]
    await lab.look(2.0)
    await lab.look(11.0)
    assert lab.tools.hits.tracks["rank/serve/0"].window(60.0, lab.clock.now) is not None
    await lab.look(11.0, "i2")
    assert lab.tools.hits.tracks["rank/serve/0"].window(60.0, lab.clock.now) is None
