"""A check that only observes says once that it fails, and once that it passes again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.policy.build import FAILING, PASSED, snapshot, view
from yrnode.model.board import PROTOCOL, Board, Peer
from yrnode.model.snapshot import ComponentView
from yrnode.model.starts import Starts
from yrnode.model.state import State
from yrnode.model.verdict import Tally, unknown
from yrnode.node.notices import Notices
from yrnode.telemetry.events import EventLog


def worker(tally: Tally, check: str = "observes", state: State = State.READY, instance: str = "i1") -> ComponentView:
    return view("worker", state, checks={check: tally}, instance=instance)


def told(*views: ComponentView) -> list[tuple[str, str, str]]:
    events = EventLog(None)
    notices = Notices(events)
    for v in views:
        notices.look(snapshot(v))
    return [(e.target, e.what, e.instance) for e in events.since(0)]


UNKNOWN = replace(PASSED, result=unknown("this daemon slept 40 s"))
FAILED, AGAIN = ("worker", "check-failed", "i1"), ("worker", "check-passed", "i1")


def test_each_change_is_told_once() -> None:
    assert told(*map(worker, (PASSED, FAILING, FAILING, FAILING))) == [FAILED]
    assert told(*map(worker, (FAILING, PASSED, PASSED, FAILING, PASSED))) == [FAILED, AGAIN, FAILED, AGAIN]


def test_one_failure_below_the_threshold_is_none() -> None:
    assert told(worker(replace(FAILING, failures=1, failing=False))) == []


def test_a_result_that_says_nothing_is_no_recovery() -> None:
    assert told(*map(worker, (FAILING, UNKNOWN, FAILING))) == [FAILED]
    assert told(*map(worker, (FAILING, UNKNOWN, PASSED))) == [FAILED, AGAIN]


def test_a_check_that_acts_has_events_of_its_own() -> None:
    assert told(worker(FAILING, "acts"), worker(PASSED, "acts")) == []


@pytest.mark.parametrize("state", [State.STARTING, State.STOPPING, State.BACKOFF])
def test_who_is_not_judged_is_not_told_of(state: State) -> None:
    assert told(worker(FAILING, state=state)) == []


def test_a_start_that_is_late_is_told_once_and_only_then() -> None:
    def late(since: float, instance: str = "i1") -> list[str]:
        s = replace(
            snapshot(worker(PASSED, state=State.STARTING, instance=instance)), starts=Starts({"worker": 20.0})
        )
        worker_since = replace(s.components["worker"], since=since)
        notices.look(replace(s, components={**s.components, "worker": worker_since}))
        return [e.text for e in events.since(0) if e.what == "late"]

    events = EventLog(None)
    notices = Notices(events)
    assert late(since=61.0) == [], "now is 100"
    assert late(since=60.0) == ["has been starting for 40 s, usually 20 s; it is left to start"]
    assert len(late(since=10.0)) == 1
    assert len(late(since=10.0, instance="i2")) == 2


def test_another_instance_begins_anew() -> None:
    second = worker(FAILING, instance="i2")
    assert told(worker(FAILING), worker(PASSED, instance="i2"), second) == [FAILED, (*FAILED[:2], "i2")]


def test_the_words() -> None:
    events = EventLog(None)
    Notices(events).look(snapshot(worker(FAILING)))
    (event,) = events.since(0)
    assert (event.text, event.evidence, event.reason) == ("check observes fails", "HTTP 503", "check")


def test_another_protocol_is_told_once_and_when_it_is_over() -> None:
    events = EventLog(None)
    notices = Notices(events)
    alone, mixed = snapshot(), snapshot(board=Board(nodes={"n1": Peer("i", protocol=PROTOCOL + 1)}))
    for s in (alone, mixed, mixed, alone, alone):
        notices.look(s)
    found = [(e.what, e.reason) for e in events.since(0)]
    assert found == [("protocol", "check"), ("protocol", "recovered")]
