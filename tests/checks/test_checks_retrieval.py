"""Prompts of several blocks: who asks for what, and what is concluded from one that does not come."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from tests.checks.conftest import Clock
from tests.support.etcd import free_port
from yrnode.checks.base import Target, Tools
from yrnode.checks.ledger import SEVERAL, Ledger, Marks
from yrnode.checks.retrieval import LONGEST_PAUSE, RetrievalCheck
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN
IDLE_S, ANSWER_S, LONG = 30.0, 0.15, 320


@dataclass
class Servers:
    """Ranks of one group before one cache: `dead` ones never answer what they find there, `frozen` ones nothing."""

    url: str = ""
    store: set[str] = field(default_factory=set)
    own: dict[str, set[str]] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    slow_s: float = 60.0
    frozen: set[str] = field(default_factory=set)
    longest: int = 1000
    status: int = 200

    async def completion(self, request: web.Request) -> web.Response:
        rank, body = request.match_info["rank"], await request.json()
        prompt: str = body["prompt"]
        self.asked.append((rank, prompt))
        if len(prompt.split()) > self.longest:
            return web.json_response({"error": {"message": "too long"}}, status=400)
        if self.status != 200:
            return web.json_response({}, status=self.status)
        long, own = len(prompt.split()) > 10, self.own.setdefault(rank, set())
        if long and prompt not in own and prompt in self.store:
            self.hits[rank] = self.hits.get(rank, 0) + len(prompt.split())
            if rank in self.dead:
                await asyncio.sleep(self.slow_s)
        if rank in self.frozen:
            await asyncio.sleep(60)
        if long:
            own.add(prompt)
            self.store.add(prompt)
        return web.json_response(
            {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": body["max_tokens"]}}
        )

    async def metrics(self, request: web.Request) -> web.Response:
        hits = self.hits.get(request.match_info["rank"], 0)
        return web.Response(text=f'vllm:external_prefix_cache_hits_total{{engine="0"}} {hits}.0\n')

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()


@pytest_asyncio.fixture
async def servers() -> AsyncIterator[Servers]:
    servers = Servers(url=f"http://127.0.0.1:{(port := free_port())}")
    app = web.Application()
    app.router.add_post("/{rank}/v1/completions", servers.completion)
    app.router.add_get("/{rank}/metrics", servers.metrics)
    app.router.add_get("/{rank}/health", servers.health)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield servers
    await runner.cleanup()


@dataclass
class Lab:
    servers: Servers
    tools: Tools
    clock: Clock

    def rank(self, name: str, instance: str = "i1") -> Rank:
        asks = {"url": f"{self.servers.url}/{name}", "model": "m", "key": "", "group": "serve", "words": LONG}
        asks |= {"idle_s": IDLE_S, "answer_s": ANSWER_S}
        spec = CheckSpec("cache", "retrieval", 1.0, 60.0, params=asks)
        return Rank(self, Target(name, instance, 1), RetrievalCheck(spec, self.tools))


@dataclass
class Rank:
    lab: Lab
    target: Target
    check: RetrievalCheck

    @property
    def ledger(self) -> Ledger:
        return self.lab.tools.ledgers.of(self.target.component, self.target.instance)

    async def probe(self, after_s: float = IDLE_S) -> Result:
        self.lab.clock.now += after_s
        return await self.check.probe(self.target)

    async def prove(self) -> None:
        assert (await self.probe()).verdict is OK


@pytest_asyncio.fixture
async def lab(http: aiohttp.ClientSession, servers: Servers) -> Lab:
    clock = Clock()
    return Lab(servers, Tools(http, None, lambda: 0.0, clock), clock)  # type: ignore[arg-type]


async def test_a_rank_alone_gets_the_same_long_prompt_twice_when_it_starts(lab: Lab) -> None:
    await lab.rank("a").prove()
    (_, first), (_, second) = lab.servers.asked
    assert first == second
    assert len(first.split()) == LONG


async def test_each_rank_is_asked_for_what_another_has_stored(lab: Lab) -> None:
    a, b = lab.rank("a"), lab.rank("b")
    await a.prove()
    await b.prove()
    assert lab.servers.hits == {"b": LONG}
    for n in range(2, 6):
        results = [await r.probe() for r in (a, b)]
        assert [r.verdict for r in results] == [OK, OK]
        assert lab.servers.hits["b"] >= n // 2 * LONG
    assert lab.servers.hits["a"] >= 2 * LONG, "both of them, not one for ever"
    assert len(lab.tools.ledgers.prompts("serve")) == 2


async def test_a_new_instance_asks_for_what_the_one_before_it_stored(lab: Lab) -> None:
    await lab.rank("a").prove()
    lab.servers.own.clear()
    again = lab.rank("a", "i2")
    result = await again.probe()
    assert result.verdict is OK
    assert lab.servers.hits == {}, "its own new one came between"
    other = lab.rank("b")
    assert f"{LONG} tokens of it from the external cache" in (await other.probe()).evidence


async def test_it_is_asked_at_its_own_pace(lab: Lab) -> None:
    a = lab.rank("a")
    await a.prove()
    for _ in range(5):
        assert "s ago" in (await a.probe(5.0)).evidence
    assert len(lab.servers.asked) == 2
    await a.probe(5.0)
    assert len(lab.servers.asked) == 3


@pytest.mark.parametrize("fact", [{"missed": 1}, {"stopped": True}])
async def test_a_rank_that_does_not_answer_short_ones_is_the_canarys(lab: Lab, fact: dict[str, int]) -> None:
    a = lab.rank("a")
    await a.prove()
    for name, value in fact.items():
        setattr(a.ledger, name, value)
    assert (await a.probe()).verdict is OK
    async with lab.tools.ledgers.turn("serve"):
        assert "s ago" in (await a.probe()).evidence
    assert len(lab.servers.asked) == 2


async def two(lab: Lab) -> tuple[Rank, Rank]:
    a, b = lab.rank("a"), lab.rank("b")
    await a.prove()
    await b.prove()
    return a, b


async def test_a_dead_link_is_seen_and_told(lab: Lab) -> None:
    a, b = await two(lab)
    lab.servers.dead.add("b")
    for _ in range(3):
        assert (await a.probe()).verdict is OK
        lost = await b.probe()
    assert (lost.verdict, b.ledger.missed, b.ledger.asking) == (FAIL, 0, 0)
    assert lost.evidence.startswith("requests with external hits do not finish, short ones do; the last that did: ")
    assert " UTC" in lost.evidence
    assert lost.facts["lost"] >= 1
    # less and less often
    pauses = []
    for _ in range(100):
        before = len(lab.servers.asked)
        await b.probe(IDLE_S)
        if len(lab.servers.asked) > before:
            pauses.append(lab.clock.now)
        await a.probe(0.0)
        if len(pauses) == 6:
            break
    gaps = [y - x for x, y in itertools.pairwise(pauses)]
    assert max(gaps) == LONGEST_PAUSE * IDLE_S
    lab.servers.dead.clear()
    for _ in range(LONGEST_PAUSE):
        result = await b.probe()
    assert (result.verdict, b.ledger.lost) == (OK, 0)


async def test_a_slow_cache_is_no_dead_link(lab: Lab) -> None:
    a, b = await two(lab)
    lab.servers.dead.add("b")
    lab.servers.slow_s = 1.6 * ANSWER_S
    most = 0
    for _ in range(8):
        await a.probe()
        await b.probe()
        most = max(most, b.ledger.lost)
    assert most == 1, "one that was late is waited for longer"


async def test_an_engine_that_answers_nothing_is_no_dead_link(lab: Lab) -> None:
    a, b = await two(lab)
    await a.probe()
    lab.servers.frozen.add("b")
    result = await b.probe()
    assert (result.verdict, b.ledger.lost) == (UNKNOWN, 0)


async def test_a_model_that_takes_only_shorter_ones(lab: Lab) -> None:
    lab.servers.longest = 100
    await lab.rank("a").prove()
    assert [len(p.split()) for _, p in lab.servers.asked] == [320, 160, 80, 80]


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_server_that_refuses_serves_all_the_same(lab: Lab, status: int) -> None:
    lab.servers.status = status
    result = await lab.rank("a").probe()
    assert (result.verdict, result.proves) == (UNKNOWN, True)


async def test_an_error_is_a_failure_and_no_lost_prompt(lab: Lab) -> None:
    a = lab.rank("a")
    await a.prove()
    lab.servers.status = 500
    result = await a.probe()
    assert (result.verdict, result.facts) == (FAIL, {})


# the ledger's part


def test_several_that_never_finish() -> None:
    ledger = Ledger()
    ledger.read(0, None, 0.0)
    for now, load, unfinished in ((1, 9, 9), (5, 2, 2), (9, 4, 3)):
        ledger.read(load, Marks(now, now), float(now), unfinished)
    assert ledger.several_s(9.0) == 8.0
    ledger.read(9, Marks(0, 0), 10.0, SEVERAL - 1)
    assert ledger.several_s(10.0) == 0.0, "clients that do not read their answers are in flight, and finished"
    ledger.read(9, Marks(0, 0), 11.0, SEVERAL)
    ledger.ask()
    ledger.read(1, Marks(0, 0), 15.0, 0)
    ledger.asked()
    assert ledger.several_s(15.0) == 4.0, "nobody counts while ours are among them"
    ledger.read(0, None, 16.0)
    assert ledger.several_s(16.0) == 0.0
