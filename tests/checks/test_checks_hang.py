"""The witnesses of a hang: the ledger, the canary's timing, processes that do not run, the liveness file."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from tests.checks.conftest import Clock, tools
from tests.process.lab import state_of, until
from tests.support.etcd import free_port
from yrnode.checks import liveness as liveness_module
from yrnode.checks.base import Check, Target, Tools
from yrnode.checks.canary import CanaryCheck
from yrnode.checks.engine import EngineCheck
from yrnode.checks.kinds import make
from yrnode.checks.ledger import Ledger, Ledgers, Marks
from yrnode.checks.liveness import LivenessCheck
from yrnode.checks.process import Frozen
from yrnode.checks.progress import ProgressCheck, read_page, shares
from yrnode.checks.pulse import AFTERMATH_S, LATE_S, Pulse
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict
from yrnode.process import table

TARGET = Target("rank/serve/0", "i1", 1)
OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN


# the ledger


def marks(n: int, tokens: int = 0) -> Marks:
    return Marks(n, tokens)


def answered(ledger: Ledger, now: float) -> None:
    """A canary that has brought its token."""
    ledger.ask()
    ledger.answer(now)
    ledger.asked()


def test_a_rank_that_was_asked_for_nothing_stands_for_nothing() -> None:
    ledger = Ledger()
    for now in range(100):
        ledger.read(0, None, float(now))
    assert ledger.still_s(99.0) == 0.0


def test_what_moves_resets_and_what_stands_adds_up() -> None:
    ledger = Ledger()
    ledger.read(0, None, 0.0)
    for now, mark in ((1.0, 1), (2.0, 2), (3.0, 2), (9.0, 2)):
        ledger.read(3, marks(mark), now)
    assert ledger.still_s(9.0) == 7.0
    # a page that could not be read is no evidence for either
    ledger.read(3, None, 10.0)
    assert ledger.still_s(10.0) == 8.0
    ledger.read(3, marks(3), 11.0)
    assert ledger.still_s(11.0) == 0.0


def test_a_missed_canary_keeps_an_idle_rank_on_watch() -> None:
    ledger = Ledger()
    ledger.read(0, None, 0.0)
    ledger.miss()
    ledger.read(0, marks(1), 5.0)
    ledger.read(0, marks(1), 9.0)
    assert ledger.still_s(9.0) == 9.0
    ledger.answer(10.0)
    ledger.read(0, None, 11.0)
    assert (ledger.still_s(11.0), ledger.missed) == (0.0, 0)


def test_what_only_the_canary_moved() -> None:
    ledger = Ledger()
    ledger.read(0, None, 0.0)
    ledger.read(1, marks(1), 1.0)
    ledger.ask()
    ledger.answer(20.0)
    ledger.read(1, marks(2, 1), 21.0)
    assert ledger.still_s(22.0) == 1.0, "the engine answers"
    assert ledger.stuck_s(21.0) == 21.0, "and the request stands"


def test_a_canary_that_comes_and_goes_moves_gauges_and_nothing_else() -> None:
    ledger = Ledger()
    ledger.read(0, None, 0.0)
    ledger.read(1, marks(1), 1.0)
    ledger.ask()
    ledger.asking = True
    ledger.read(2, marks(2), 5.0)
    ledger.asking = False
    ledger.read(1, marks(3), 11.0)
    assert ledger.still_s(11.0) == 11.0
    ledger.ask()
    ledger.read(2, marks(4, 1), 12.0)
    assert ledger.still_s(12.0) == 0.0, "tokens while it waits are another's"


@pytest.mark.parametrize(("each", "stuck"), [(0, True), (1, True), (2, False), (3, False)])
def test_what_canaries_bring_is_told_from_what_others_get(each: int, stuck: bool) -> None:
    """A canary is answered before each reading, and `each` tokens are counted: its own, or others' too."""
    ledger = Ledger()
    ledger.read(8, Marks(0, 0, 0), 0.0, 8)
    for i in range(1, 11):
        answered(ledger, 2.0 * i - 0.5)
        ledger.read(8, Marks(i, i, each * i), 2.0 * i, 8)
        assert ledger.still_s(2.0 * i) <= 0.5
    assert ledger.stuck_s(20.0) == (20.0 if stuck else 0.0)


def test_a_canary_that_is_counted_after_its_answer_is_nobody_elses_token() -> None:
    ledger = Ledger()
    ledger.read(8, Marks(0, 0, 0), 0.0, 8)
    for i in range(1, 6):
        answered(ledger, 4.0 * i - 3.0)
        ledger.read(8, Marks(0, 2 * i - 1, 2 * i - 2), 4.0 * i - 2.0, 8)
        answered(ledger, 4.0 * i - 1.0)
        # two of them at once
        ledger.read(8, Marks(0, 2 * i, 2 * i), 4.0 * i, 8)
    assert ledger.stuck_s(20.0) == 20.0


def test_a_token_that_is_counted_when_nobody_asks_any_more_is_still_our_own() -> None:
    ledger = Ledger()
    ledger.read(8, Marks(0, 0, 0), 0.0, 8)
    for i in range(1, 51):
        answered(ledger, 4.0 * i - 3.0)
        ledger.read(8, Marks(0, i - 1, i - 1), 4.0 * i - 2.0, 8)
        ledger.read(8, Marks(0, i, i), 4.0 * i, 8)
    assert ledger.stuck_s(200.0) == 200.0


def test_the_longest_stand_that_ended_is_kept_over_instances() -> None:
    ledgers = Ledgers()
    ledger = ledgers.of("rank", "i1")
    ledger.read(0, None, 0.0)
    ledger.read(1, marks(1), 1.0)
    ledger.read(1, marks(2), 71.0)
    ledger.read(1, marks(3), 75.0)
    assert ledger.longest_s == 71.0, "short pauses are none"
    assert ledgers.of("rank", "i1") is ledger
    assert ledgers.of("rank", "i2").longest_s == 71.0
    assert ledgers.of("other", "i1").longest_s == 0.0


PAGE = b"""# TYPE vllm:num_requests_running gauge
process_cpu_seconds_total %d
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} 3.0
vllm:kv_cache_usage_perc{engine="0"} 0.%d
vllm:generation_tokens_total{engine="0"} %d
vllm:request_success_total{engine="0",finished_reason="abort"} %d
"""


def test_a_page_of_metrics() -> None:
    base, in_flight = read_page(PAGE % (1, 1, 1, 1))
    assert in_flight == 5
    assert read_page(PAGE % (2, 1, 1, 2))[0] == base, "neither the server's own time nor clients that go are movement"
    prefill, _ = read_page(PAGE % (1, 2, 1, 1))
    tokens, _ = read_page(PAGE % (1, 1, 2, 1))
    assert base is not None
    assert prefill is not None
    assert tokens is not None
    assert (prefill.all != base.all, prefill.tokens == base.tokens) == (True, True)
    assert tokens.tokens != base.tokens
    assert read_page(b"process_cpu_seconds_total 1\n") == (None, 0)


# a rank's server that is made up


@dataclass
class Rank:
    """A server whose load, series and patience the test sets."""

    load: int = 0
    tokens: int = 0
    status: int = 200
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0
    url: str = ""

    async def completion(self, _: web.Request) -> web.Response:
        self.asked += 1
        await self.answers.wait()
        body = {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": 1}}
        return web.json_response(body if self.status == 200 else {"error": "Unauthorized"}, status=self.status)

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=PAGE % (1, 1, self.tokens, 1))


@pytest_asyncio.fixture
async def rank() -> AsyncIterator[Rank]:
    rank = Rank(url=f"http://127.0.0.1:{(port := free_port())}")
    rank.answers.set()

    async def load(_: web.Request) -> web.Response:
        return web.json_response({"server_load": rank.load})

    app = web.Application()
    app.router.add_post("/v1/completions", rank.completion)
    app.router.add_get("/load", load)
    app.router.add_get("/metrics", rank.metrics)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield rank
    await runner.cleanup()


@dataclass
class Asking:
    """The two checks of a server, each asked at a time of the test's own."""

    tools: Tools
    clock: Clock
    canary: Check
    progress: Check

    async def read(self, after_s: float = 2.0) -> Result:
        self.clock.now += after_s
        return await self.progress.probe(TARGET)

    async def ask(self, after_s: float = 0.0) -> Result:
        self.clock.now += after_s
        return await self.canary.probe(TARGET)


@dataclass
class Lab(Asking):
    rank: Rank

    @property
    def ledger(self) -> Ledger:
        return self.tools.ledgers.of(TARGET.component, TARGET.instance)


@pytest_asyncio.fixture
async def lab(http: aiohttp.ClientSession, rank: Rank) -> Lab:
    clock = Clock()
    shared = Tools(http, None, lambda: 0.0, clock)  # type: ignore[arg-type]
    asks = {"url": rank.url, "model": "m", "key": "", "group": "serve", "idle_s": 30.0, "answer_s": 0.2}
    told = {"url": rank.url, "load": True, "stall_timeout_s": 180.0}
    canary = CanaryCheck(CheckSpec("canary", "canary", 1.0, 35.0, params=asks), shared)
    progress = ProgressCheck(CheckSpec("progress", "progress", 2.0, 5.0, params=told), shared)
    lab = Lab(shared, clock, canary, progress, rank)
    assert (await lab.ask()).verdict is OK
    assert (await lab.read()).evidence == "idle"
    return lab


async def test_an_idle_rank_is_asked_at_its_own_pace(lab: Lab) -> None:
    for _ in range(5):
        assert (await lab.ask(1.0)).verdict is OK
    assert lab.rank.asked == 1
    assert (await lab.ask(30.0)).verdict is OK
    assert lab.rank.asked == 2


async def test_only_one_idle_rank_of_a_group_is_asked_at_a_time(lab: Lab) -> None:
    async with lab.tools.ledgers.turn("serve"):
        assert "s ago" in (await lab.ask(60.0)).evidence
        assert lab.rank.asked == 1
    await lab.ask()
    assert lab.rank.asked == 2


async def test_an_idle_rank_is_not_asked_while_a_peer_is_not_known_to_serve(lab: Lab) -> None:
    """vLLM's survivor of another's death dies at its next request."""
    lab.canary.tools = replace(lab.tools, unsure=lambda _: "n1 not known to serve")
    found = await lab.ask(60.0)
    assert (found.verdict, lab.rank.asked) == (OK, 1)
    assert found.evidence.endswith("not asked while idle: n1 not known to serve")
    # what stands with requests in flight is asked all the same
    lab.rank.load = 1
    for _ in range(8):
        await lab.read()
    await lab.ask()
    assert lab.rank.asked == 2


async def test_a_rank_that_moves_is_not_asked(lab: Lab) -> None:
    lab.rank.answers.clear()
    for _ in range(30):
        lab.rank.load, lab.rank.tokens = 9, lab.rank.tokens + 1
        assert (await lab.read()).verdict is OK
        assert (await lab.ask()).verdict is OK
    assert lab.rank.asked == 1


async def test_one_that_stands_is_asked_twice_at_once_and_then_with_pauses(lab: Lab) -> None:
    lab.rank.answers.clear()
    lab.rank.load = 1
    await lab.read()
    result = await lab.read(9.0)
    assert (result.verdict, result.facts["limit_s"]) == (FAIL, 180.0)
    for n in (1, 2):
        result = await lab.ask(0.01)
        assert (result.verdict, result.facts) == (FAIL, {"missed": n})
    assert (await lab.ask(0.1)).facts == {"missed": 2}
    assert lab.rank.asked == 3
    assert (await lab.ask(0.2)).facts == {"missed": 3}
    result = await lab.read()
    assert result.facts["still_s"] > 12
    assert result.evidence.startswith("1 in flight, nothing has moved for 1")
    # it moves for others again: a late canary is then a busy rank
    lab.rank.tokens += 1
    lab.rank.load = 5
    assert (await lab.read()).evidence == "5 in flight, moving"
    assert (await lab.ask()).verdict is OK


async def test_a_late_canary_of_a_rank_that_answers_others_is_no_miss(lab: Lab) -> None:
    lab.rank.answers.clear()
    lab.rank.load = 1
    await lab.read()
    await lab.read(9.0)
    asking = asyncio.create_task(lab.ask())
    await until(lambda: lab.ledger.asking)
    lab.rank.tokens += 1
    await lab.read(0.0)
    assert (await asking).verdict is UNKNOWN
    assert lab.ledger.missed == 0


async def test_a_stopped_engine_is_asked_at_once_with_less_patience(lab: Lab) -> None:
    lab.rank.answers.clear()
    lab.ledger.stopped = True
    began = time.monotonic()
    assert (await lab.ask(1.0)).facts == {"missed": 1}
    assert time.monotonic() - began < 0.2


async def test_a_stuck_request_while_the_canary_is_answered(lab: Lab) -> None:
    lab.rank.load = 2
    await lab.read()
    await lab.read(10.0)
    assert (await lab.ask()).verdict is OK
    lab.rank.tokens += 1
    result = await lab.read()
    assert (result.verdict, result.facts) == (FAIL, {"stuck_s": 14.0, "several_s": 12.0, "limit_s": 180.0})
    assert result.evidence.startswith("2 in flight without movement for ")
    assert result.evidence.endswith("requests are stuck, not the rank")


@pytest.mark.parametrize(("status", "words"), [(401, "canary not authorised"), (404, "does not fit this server")])
async def test_a_refusal_about_us_proves_the_server(lab: Lab, status: int, words: str) -> None:
    lab.rank.status = status
    result = await lab.ask(30.0)
    assert (result.verdict, result.proves, result.facts) == (UNKNOWN, True, {"refused": 1})
    assert words in result.evidence
    assert "no token was generated" in result.evidence


async def test_a_server_that_does_not_count_its_load(lab: Lab) -> None:
    told = {"url": lab.rank.url, "load": False, "stall_timeout_s": 180.0}
    progress = ProgressCheck(CheckSpec("progress", "progress", 2.0, 5.0, params=told), lab.tools)
    assert (await progress.probe(TARGET)).evidence.startswith("5 in flight")


async def test_progress_that_cannot_be_read(http: aiohttp.ClientSession) -> None:
    told = {"url": f"http://127.0.0.1:{free_port()}", "load": True, "stall_timeout_s": 180.0}
    result = await ProgressCheck(CheckSpec("progress", "progress", 2.0, 5.0, params=told), tools(http)).probe(TARGET)
    assert result.verdict is UNKNOWN


# processes


def proc(state: str, cpu: int = 0, pid: int = 5) -> table.Proc:
    return table.Proc(pid, "core", state, 1, pid, pid, 7, cpu)


def test_for_how_long_a_process_is_kept_from_running() -> None:
    now = [0.0]
    frozen = Frozen(lambda: now[0])
    seen = []
    for state, cpu in (("T", 1), ("T", 1), ("S", 1), ("T", 1), ("D", 1), ("D", 1), ("D", 2), ("t", 2), ("R", 2)):
        seen.append(frozen.seconds(proc(state, cpu)))
        now[0] += 1.0
    assert seen == [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        yield child
        child.kill()


async def test_an_engine_process_that_is_stopped(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    shared = Tools(None, None, lambda: 0.0, clock)  # type: ignore[arg-type]
    ledger = shared.ledgers.of(TARGET.component, TARGET.instance)
    check = EngineCheck(CheckSpec("engine", "engine", 1.0, 1.0, params={"alone": True}), shared)
    assert (await check.probe(TARGET)).verdict is UNKNOWN
    found = table.read(child.pid)
    assert found is not None
    ledger.engines = [found]
    assert (await check.probe(TARGET)).verdict is OK
    clock.now += 10.0
    idle = await check.probe(TARGET)
    assert (idle.verdict, idle.facts) == (OK, {"no_cpu": 1})
    child.send_signal(signal.SIGSTOP)
    await until(lambda: state_of(child.pid) == "T")
    assert (await check.probe(TARGET)).verdict is OK, "a moment is none"
    assert ledger.stopped
    clock.now += 3.0
    held = await check.probe(TARGET)
    assert (held.verdict, held.evidence) == (FAIL, f"frozen: sleep (pid {child.pid}, state T) for 3 s")
    child.send_signal(signal.SIGCONT)
    await until(lambda: state_of(child.pid) == "S")
    assert (await check.probe(TARGET)).verdict is OK
    assert not ledger.stopped
    # where a rank on another node may be the one that works, no CPU time says nothing
    distant = EngineCheck(CheckSpec("engine", "engine", 1.0, 1.0, params={"alone": False}), shared)
    await distant.probe(TARGET)
    clock.now += 60.0
    assert (await distant.probe(TARGET)).facts == {}


# the liveness file


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def liveness(tmp_path: Path, clock: Clock) -> LivenessCheck:
    spec = CheckSpec("liveness", "worker-liveness", 0.5, 3.0, params={"path": str(tmp_path / "liveness")})
    return LivenessCheck(spec, Tools(None, None, lambda: 0.0, clock))  # type: ignore[arg-type]


def write(check: LivenessCheck, text: str = "liveness check success\n\n") -> None:
    path = Path(check.param("path"))
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 1, before + 1))


async def test_a_file_that_changes_is_fresh_whatever_its_time_says(liveness: LivenessCheck, clock: Clock) -> None:
    for _ in range(5):
        write(liveness, "liveness check failed\n\n")
        clock.now += 2.9
        assert (await liveness.probe(TARGET)).verdict is OK
    # its mtime is of 1970: only that it changes counts
    assert Path(liveness.param("path")).stat().st_mtime < 1


async def test_a_file_that_stands_is_stale(liveness: LivenessCheck, clock: Clock) -> None:
    write(liveness)
    assert (await liveness.probe(TARGET)).verdict is OK
    clock.now += 2.9
    assert (await liveness.probe(TARGET)).verdict is OK
    clock.now += 0.2
    stale = await liveness.probe(TARGET)
    assert stale.verdict is FAIL
    assert stale.facts["stale_s"] == pytest.approx(3.1)
    assert "has not changed for 3.1 s" in stale.evidence
    write(liveness)
    assert (await liveness.probe(TARGET)).verdict is OK


async def test_a_file_that_is_not_there(liveness: LivenessCheck, clock: Clock) -> None:
    assert (await liveness.probe(TARGET)).verdict is OK
    clock.now += 3.0
    assert "is missing for 3.0 s" in (await liveness.probe(TARGET)).evidence


async def test_a_file_that_is_read_while_empty_is_no_verdict(liveness: LivenessCheck) -> None:
    """A writer that truncates and writes as the worker does, and thousands of reads."""
    path, over = Path(liveness.param("path")), threading.Event()

    def writer() -> None:
        while not over.is_set():
            with open(path, "w") as f:
                f.flush()
                time.sleep(0.0002)
                f.write("liveness check success\n\n")

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        await until(path.exists)
        verdicts = {(await liveness.probe(TARGET)).verdict for _ in range(2000)}
    finally:
        over.set()
        thread.join()
    assert verdicts == {OK}


async def test_a_file_that_stays_empty(liveness: LivenessCheck, clock: Clock) -> None:
    for _ in range(3):
        write(liveness, "")
        result = await liveness.probe(TARGET)
        clock.now += 1.6
    assert (result.verdict, result.facts) == (FAIL, {})
    assert "is empty for 3.2 s" in result.evidence


@pytest.mark.parametrize(
    ("free", "flags", "words"), [(0, 0, "no space left on the disk of "), (9, os.ST_RDONLY, "read-only file system")]
)
async def test_a_disk_that_takes_nothing_is_no_fault_of_the_worker(
    liveness: LivenessCheck, clock: Clock, monkeypatch: pytest.MonkeyPatch, free: int, flags: int, words: str
) -> None:
    disk = os.statvfs_result((4096, 4096, 100, free, free, 100, 9, 9, flags, 255))
    monkeypatch.setattr(liveness_module.os, "statvfs", lambda _: disk)
    write(liveness)
    await liveness.probe(TARGET)
    clock.now += 60.0
    result = await liveness.probe(TARGET)
    assert (result.verdict, result.facts) == (FAIL, {})
    assert words in result.evidence
    assert str(Path(liveness.param("path")).parent) in result.evidence


# the daemon's own hold-ups


async def hold_up(pulse: Pulse, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of this process jump, as a SIGSTOP does, and the loop go on."""
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + seconds)


async def test_a_clock_that_stands_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    pulse = Pulse()
    pulse.start()
    began, first = time.monotonic(), pulse.clock()
    await hold_up(pulse, 40.0, monkeypatch)
    assert pulse.clock() - first < 1
    assert pulse.held_s(began) == pytest.approx(39.5, abs=1)
    await asyncio.sleep(0)
    await until(lambda: not pulse._overdue())
    assert pulse.clock() - first < 3
    assert pulse.held_s(began) > LATE_S
    assert pulse.held_s(time.monotonic() + AFTERMATH_S + 1) == 0.0


class Says:
    """A check that fails after a moment."""

    async def probe(self, target: Target) -> Result:
        await asyncio.sleep(0)
        return Result(FAIL, "no answer within 1 s")

    async def close(self) -> None: ...


async def test_a_failure_while_the_daemon_slept_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tools()
    monkeypatch.setitem(__import__("yrnode.checks.kinds", fromlist=["KINDS"]).KINDS, "says", lambda *_: Says())
    check: Check = make(CheckSpec("says", "says", 1.0, 1.0), shared)
    assert (await check.probe(TARGET)).verdict is FAIL
    await hold_up(shared.pulse, 40.0, monkeypatch)
    result = await check.probe(TARGET)
    assert result.verdict is UNKNOWN
    assert "this daemon itself was held up for" in result.evidence
    assert "no answer within 1 s" in result.evidence


# several engines behind one server


@dataclass
class Several:
    """A head with engines that the test sets: who owns up to which requests, who moves, who answers."""

    load: int = 0
    owns: list[int] = field(default_factory=lambda: [0, 0])
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    answers: list[bool] = field(default_factory=lambda: [True, True])
    asked: list[int] = field(default_factory=list)

    async def completion(self, request: web.Request) -> web.Response:
        rank = int(request.headers["X-data-parallel-rank"])
        self.asked.append(rank)
        if not self.answers[rank]:
            await asyncio.Event().wait()
        body = {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": 1}}
        return web.json_response(body)

    async def loads(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": self.load})

    async def metrics(self, _: web.Request) -> web.Response:
        lines = [f'vllm:num_requests_running{{engine="{n}"}} {own}.0' for n, own in enumerate(self.owns)]
        lines += [f'vllm:generation_tokens_total{{engine="{n}"}} {count}.0' for n, count in enumerate(self.tokens)]
        return web.Response(text="\n".join(lines) + "\n")


@dataclass
class HeadLab(Asking):
    head: Several


@pytest_asyncio.fixture
async def headed(http: aiohttp.ClientSession) -> AsyncIterator[HeadLab]:
    head, port = Several(), free_port()
    app = web.Application()
    app.router.add_post("/v1/completions", head.completion)
    app.router.add_get("/load", head.loads)
    app.router.add_get("/metrics", head.metrics)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    clock = Clock()
    shared = Tools(http, None, lambda: 0.0, clock)  # type: ignore[arg-type]
    both = {"url": f"http://127.0.0.1:{port}", "ranks": (0, 1)}
    asks = {**both, "model": "m", "key": "", "group": "serve", "idle_s": 30.0, "answer_s": 0.2}
    told = {**both, "load": True, "stall_timeout_s": 180.0}
    canary = make(CheckSpec("canary", "canary", 1.0, 35.0, params=asks), shared)
    progress = make(CheckSpec("progress", "progress", 2.0, 5.0, params=told), shared)
    lab = HeadLab(shared, clock, canary, progress, head)
    assert (await lab.ask()).evidence.startswith("2 engines: completion: 1 token")
    assert sorted(head.asked) == [0, 1], "a start is proven by every engine"
    head.asked.clear()
    assert (await lab.read()).evidence == "2 engines: idle"
    yield lab
    await runner.cleanup()


async def test_idle_engines_are_asked_one_after_another(headed: HeadLab) -> None:
    assert (await headed.ask(27.0)).verdict is OK
    assert headed.head.asked == []
    for after_s in (1.0, 1.0, 1.0):
        assert (await headed.ask(after_s)).verdict is OK
    assert headed.head.asked == [0, 1]


async def test_an_idle_engine_that_does_not_answer_is_found_behind_one_that_does(headed: HeadLab) -> None:
    headed.head.answers[1] = False
    found = [await headed.ask(after_s) for after_s in (30.0, 1.0)]
    assert [r.verdict for r in found] == [OK, FAIL]
    assert (found[1].evidence, found[1].facts) == ("engine 1: canary: no token within 0.2 s", {"missed": 1})
    assert (await headed.ask(0.1)).facts == {"missed": 2}
    await headed.read()
    late = await headed.read(60.0)
    assert late.evidence.startswith("engine 1: 0 in flight, nothing has moved for 93 s")


async def test_a_busy_engine_does_not_hide_one_that_stands(headed: HeadLab) -> None:
    head = headed.head
    head.load, head.owns, head.answers[1] = 3, [2, 1], False
    await headed.read()
    for _ in range(6):
        head.tokens[0] += 5
        result = await headed.read()
    assert (result.verdict, result.facts["still_s"]) == (FAIL, 14.0)
    assert result.evidence.startswith("engine 1: 1 in flight, nothing has moved for 14 s")
    assert [(await headed.ask(0.1)).facts for _ in range(2)] == [{"missed": 1}, {"missed": 2}]
    assert set(head.asked) == {1}, "who moves is not asked"


async def test_a_request_that_no_engine_owns_up_to_is_looked_for_at_those_that_say_they_have_none(
    headed: HeadLab,
) -> None:
    """An engine that was stopped while idle goes on publishing that nothing runs."""
    head = headed.head
    head.load, head.owns, head.answers[1] = 3, [2, 0], False
    await headed.read()
    for _ in range(6):
        head.tokens[0] += 5
        result = await headed.read()
    assert result.evidence.startswith("engine 1: 1 in flight, nothing has moved for 14 s")
    assert (await headed.ask()).facts == {"missed": 1}
    assert head.asked == [1]


async def test_a_stopped_process_has_every_engine_asked_at_once(headed: HeadLab) -> None:
    headed.head.answers[1] = False
    headed.tools.ledgers.of(TARGET.component, TARGET.instance).stopped = True
    assert (await headed.ask(1.0)).facts == {"missed": 1}
    assert sorted(headed.head.asked) == [0, 1]


def test_what_each_engine_has() -> None:
    assert shares(7, [(None, 2)]) == [7], "one engine: the server's count"
    assert shares(None, [(None, 2)]) == [2]
    assert shares(None, [(None, 2), (None, 0)]) == [2, 0]
    assert shares(5, [(None, 2), (None, 0), (None, 1)]) == [2, 2, 1]
    assert shares(2, [(None, 2), (None, 1)]) == [2, 1]
