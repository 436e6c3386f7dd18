"""A wall clock that jumps and a daemon that sleeps restart nothing, and are told once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.policy.build import FAILING, RANKS, record, serve, snapshot, view
from tests.support.node import YrNode, cluster_text, yrnode
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import Stage
from yrnode.model.snapshot import ComponentView, Failure, Snapshot
from yrnode.model.state import State
from yrnode.node.clocks import LOOK_ANEW_S, Clocks, Now
from yrnode.node.world import World
from yrnode.policy.plan import decide
from yrnode.telemetry.event_file import read_events
from yrnode.telemetry.events import EventLog

pytestmark = pytest.mark.long

HOUR, YEAR = 3600.0, 365 * 86400.0


class Time:
    """Clocks as the test says, and what is told about them."""

    def __init__(self, s: Snapshot | None = None) -> None:
        s = s or snapshot()
        self.now = Now(100.0, 500.0, 1.8e9)
        self.world = World(dict(s.components), dict(s.groups))
        self.events = EventLog(None)
        self.clocks = Clocks(self.world, self.events, lambda: self.now)
        assert self.clocks.look()

    def goes_on(self, awake: float = 1.0, *, jump: float = 0.0, suspended: float = 0.0) -> bool:
        n = self.now
        self.now = Now(n.monotonic + awake, n.boot + awake + suspended, n.wall + awake + suspended + jump)
        return self.clocks.look()

    @property
    def told(self) -> list[str]:
        return [e.text for e in self.events.since(0)]


@pytest.mark.parametrize(
    ("jump", "words"),
    [(-HOUR, "\N{MINUS SIGN}3600 s"), (HOUR, "+3600 s"), (-YEAR, "\N{MINUS SIGN}31536000 s"), (1.5, "+2 s")],
)
def test_each_jump_is_told_once_and_holds_nothing_up(jump: float, words: str) -> None:
    clock = Time()
    for jumped in (0.0, jump, 0.0, 0.0):
        assert clock.goes_on(jump=jumped)
    assert clock.told == [f"wall clock moved by {words}"]


def test_a_clock_that_is_slewed_has_not_moved() -> None:
    clock = Time()
    for _ in range(5000):
        assert clock.goes_on(jump=0.0005)
    assert clock.told == []


SLEEPS: list[tuple[dict[str, float], str]] = [
    ({"awake": 40.0}, "this daemon slept 40 s, its verdicts of that time are void"),
    (
        {"awake": 1.0, "suspended": 7200.0},
        "this machine was suspended for 7200 s, its verdicts of that time are void",
    ),
]


@pytest.mark.parametrize(("gap", "words"), SLEEPS)
def test_who_slept_looks_anew_before_judging(gap: dict[str, float], words: str) -> None:
    sick = replace(view("worker"), checks={**view("worker").checks, "acts": FAILING})
    starting = view(RANKS[0], State.STARTING, deadline=110.0)
    clock = Time(snapshot(sick, starting))
    assert not clock.goes_on(**gap)
    assert clock.told == [words]
    tally = clock.world.components["worker"].checks["acts"]
    assert (tally.result.verdict.value, tally.failing, tally.failures) == ("unknown", False, 0)
    assert words.partition(",")[0] in tally.result.evidence
    assert tally.passed, "it has been proven, and need not prove itself again"
    assert clock.world.components[RANKS[0]].deadline == 110.0 + gap["awake"]
    assert not clock.goes_on(LOOK_ANEW_S - 0.5)
    assert clock.goes_on(0.6)
    assert clock.told == [words]


def test_a_busy_round_is_no_sleep() -> None:
    clock = Time()
    assert clock.goes_on(4.9)
    assert clock.told == []


FAULT = Cause(Reason.EXITED, "exited: killed by SIGKILL")
MOMENTS: list[tuple[str, list[ComponentView], Any]] = [
    ("at the start", [view("etcd", State.STOPPED)], record()),
    ("in backoff", [view("worker", State.BACKOFF, deadline=130.0, leaving=FAULT)], record()),
    ("in a group's start", [view(RANKS[0], State.STARTING, deadline=160.0)], record(n=2)),
    (
        "in a group's pause",
        [view(n, State.CLEANING, cleaned=True) for n in RANKS],
        record(Stage.STOP, backoff_s=30),
    ),
    ("in a budget's window", [view("worker", history=(Failure(90.0, 5.0, FAULT),) * 4)], record()),
]


@pytest.mark.parametrize(("what", "views", "group"), MOMENTS, ids=[m[0] for m in MOMENTS])
@pytest.mark.parametrize("jump", [-HOUR, HOUR, -YEAR])
def test_a_jump_decides_nothing(what: str, views: list[ComponentView], group: Any, jump: float) -> None:
    s = snapshot(*views, group=serve(group))
    clock = Time(s)
    before = decide(s)
    assert clock.goes_on(jump=jump)
    after = clock.world.snapshot(s.now)
    shared = {"me": s.me, "board": s.board, "fresh": s.fresh, "proven_at": s.proven_at}
    assert decide(replace(after, store_available=s.store_available, **shared)) == before
    assert after.components == s.components


def test_events_keep_their_order_when_time_goes_back(tmp_path: Path) -> None:
    wall = [1000.0]
    log = EventLog(tmp_path / "events.jsonl", clock=lambda: wall[0])
    for at in (1000.0, 1001.0, -2600.0, -2599.0, 5000.0):
        wall[0] = at
        log.emit("yrnode", f"at {at:g}", FAULT)
    again = EventLog(tmp_path / "events.jsonl", clock=lambda: 0.0)
    again.emit("yrnode", "last", FAULT)
    for events in (again.since(0), read_events(tmp_path / "events.jsonl", 100)):
        assert [e.seq for e in events] == [1, 2, 3, 4, 5, 6]
        assert [e.at for e in events] == [1000.0, 1001.0, -2600.0, -2599.0, 5000.0, 0.0]


# a real daemon

CHECKS = """
checks:
  rank.engine: {period: 200ms}
  rank.progress: {period: 200ms, stall_timeout: 4s}
  rank.canary: {period: 1s, timeout: 1s}
  rank.cache: {period: 1s, timeout: 1s}
"""
SLEEP_S = 8.0


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(more=CHECKS)) as node:
        node.wait_ready()
        yield node


def sleep(node: YrNode, seconds: float) -> None:
    """The daemon alone is stopped for so long."""
    assert node.process is not None
    node.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    node.process.send_signal(signal.SIGCONT)


def clock_events(node: YrNode) -> list[str]:
    return [e["text"] for e in node.events() if e["what"] == "clock"]


def steady(node: YrNode, seconds: float) -> None:
    """Nothing is restarted, nor becomes unready, for so long."""
    pids, until = node.pids(), time.monotonic() + seconds
    while time.monotonic() < until:
        assert node.status()["ready"]
        time.sleep(0.1)
    assert node.pids() == pids
    assert all(c["restarts"] == 0 for c in node.status()["components"].values())


def test_a_daemon_that_slept_says_so_and_restarts_nothing(node: YrNode) -> None:
    before = node.pids()
    sleep(node, SLEEP_S)
    told = node.wait("the event", lambda: clock_events(node), 20)
    seconds = float(told[0].removeprefix("this daemon slept ").partition(" s,")[0])
    assert SLEEP_S - 1 <= seconds <= SLEEP_S + 5
    assert told == [f"this daemon slept {seconds:.0f} s, its verdicts of that time are void"]
    steady(node, 6)
    assert node.pids() == before
    assert len(clock_events(node)) == 1


def test_what_died_meanwhile_is_an_ordinary_death(node: YrNode) -> None:
    assert node.process is not None
    before = node.pids()
    node.process.send_signal(signal.SIGSTOP)
    os.kill(before["worker"], signal.SIGKILL)
    time.sleep(6.5)
    node.process.send_signal(signal.SIGCONT)
    node.wait("another worker", lambda: node.component("worker")["pid"] not in (None, before["worker"]), 60)
    node.wait_ready()
    after = node.pids()
    assert {**after, "worker": 0} == {**before, "worker": 0}
    stop = [e for e in node.events() if (e["target"], e["what"]) == ("worker", "stop")]
    assert [e["reason"] for e in stop] == ["exited"]


@pytest.mark.parametrize("when", ["1 hour", "1 year", "1 hour ago", "1 year ago"])
def test_times_of_files_restart_nothing(node: YrNode, when: str) -> None:
    before = {k: (v["pid"], v["state"]) for k, v in node.status()["components"].items()}
    worker = node.dir / "state/worker"
    files = [worker / "liveness", worker / "datasystem/probe/ready", worker / "datasystem/probe/healthy"]
    assert all(f.exists() for f in files)
    for _ in range(10):
        # While its file looks old the worker lets its lease go: it writes again before the next touch.
        subprocess.run(["touch", "-d", when, *files], check=True)
        assert node.component("worker")["checks"]["liveness"]["verdict"] != "fail"
        node.wait("the worker writes", lambda: abs(time.time() - files[0].stat().st_mtime) < 60, 10)
    assert {k: (v["pid"], v["state"]) for k, v in node.status()["components"].items()} == before


def test_a_sleep_during_a_start_takes_no_time_from_it() -> None:
    text = cluster_text(extra_args=", standin-load-time: 3").replace(
        "model: demo", "model: demo\n    start_timeout: 7s"
    )
    with yrnode(text) as node:
        node.wait("a rank that loads", lambda: node.component(RANKS[1]).get("state") == "starting")
        sleep(node, 8)
        node.wait_ready()
        assert node.status()["groups"]["serve"]["generation"] == 1
        assert [e["what"] for e in node.events() if e["what"] in ("bump", "stop")] == []
        assert json.dumps(clock_events(node)).count("slept") == 1
