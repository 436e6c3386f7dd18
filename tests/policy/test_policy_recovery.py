"""The phases of a recovery, along histories of snapshots: when each is reached, and from when it is timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import DEATH, FAILING, PASSED, RANKS, record, serve, snapshot, view
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import Stage
from yrnode.model.routing import Judged, Role, Route, RouterView, RouteView, Standing
from yrnode.model.snapshot import Absence, ComponentView, GroupView, Snapshot
from yrnode.model.state import State
from yrnode.policy.recovery import Known, Step, follow

S = State
A, B = RANKS
KILLED = replace(DEATH, component=A)
HANG = Cause(Reason.HANG, "hangs", "", A)


def at(now: float, *views: ComponentView, group: GroupView | None = None, **facts: Any) -> Snapshot:
    return replace(snapshot(*views, group=group, **facts), now=now)


def told(*snapshots: Snapshot) -> list[tuple[str, float]]:
    """Phase and seconds of everything that is told along the history, of one group or component."""
    steps = played(*snapshots)
    assert len({(s.group, s.component) for s in steps}) <= 1
    return [(s.phase, round(s.seconds, 3)) for s in steps]


def played(*snapshots: Snapshot) -> list[Step]:
    known, found = Known(), []
    for s in snapshots:
        known, steps = follow(known, s)
        found += steps
    return found


def both(state: State, **facts: Any) -> list[ComponentView]:
    return [view(name, state, **facts) for name in RANKS]


def life(stage: Stage, cause: Cause = KILLED, learned_at: float = 100.0, n: int = 2, **facts: Any) -> GroupView:
    return serve(record(stage, n, cause=cause), learned_at=learned_at, **facts)


STOP, GO = life(Stage.STOP), life(Stage.GO, learned_at=103.0)
SERVES = life(Stage.GO, learned_at=103.0, ready_since=110.0)
DEAD = view(A, S.STOPPING, since=99.5, died_at=99.4, death=KILLED, leaving=KILLED)
DYING = (DEAD, view(B, S.READY))


def test_a_dead_rank_from_its_death_to_serving() -> None:
    assert told(
        at(99.0),
        at(99.5, *DYING),
        at(100.0, *DYING, group=STOP),
        at(101.0, view(A, S.STOPPED, instance="", leaving=KILLED), view(B, S.STOPPING), group=STOP),
        at(101.5, *both(S.STOPPED, instance=""), group=STOP),
        at(102.0, *both(S.CLEANING, instance="", cleaned=False), group=STOP),
        at(102.5, *both(S.CLEANING, instance="", cleaned=True), group=STOP),
        at(103.1, *both(S.CLEANING, instance="", cleaned=True), group=GO),
        at(104.0, *both(S.STARTING, instance="i2", generation=2), group=GO),
        at(109.0, view(A, generation=2, instance="i2"), view(B, S.STARTING, generation=2, instance="i2"), group=GO),
        at(110.0, *both(S.READY, generation=2, instance="i2"), group=GO),
        at(110.2, *both(S.READY, generation=2, instance="i2"), group=SERVES),
        at(200.0, *both(S.READY, generation=2, instance="i2"), group=SERVES),
    ) == [("seen", 0.1), ("stopped", 2.1), ("clean", 3.1), ("go", 3.7), ("ready", 10.6), ("serving", 10.8)]


def test_a_record_that_waited_for_the_store_does_not_make_the_fault_seen_later() -> None:
    late = life(Stage.STOP, learned_at=160.0)
    down = (view(A, S.STOPPED, instance="", leaving=KILLED), view(B, S.READY))
    found = told(at(99.0), at(99.5, *DYING), at(101.0, *down), at(160.0, *down, group=late))
    assert found == [("seen", 0.1)]


def test_a_hang_is_timed_from_the_first_failure_of_what_speaks_for_it() -> None:
    canary = replace(FAILING, failing_since=70.0)
    sick = view(A, S.READY, checks={"acts": canary, "observes": replace(FAILING, failing_since=1.0)})
    assert told(at(90.0, sick), at(100.0, sick, group=life(Stage.STOP, HANG))) == [("seen", 30.0)]


def test_a_check_below_its_threshold_speaks_for_no_failed_check() -> None:
    once = replace(PASSED, failures=1, failing_since=10.0)
    sick = view("worker", checks={"gate": once, "acts": replace(FAILING, failing_since=95.0)})
    cause = Cause(Reason.CHECK, "check acts fails", "", "worker")
    ending = replace(sick, state=S.STOPPING, since=98.0, leaving=cause)
    assert told(at(97.0, sick), at(98.0, ending)) == [("seen", 3.0)]


def test_a_component_that_restarts_alone() -> None:
    dead = replace(KILLED, component="worker")
    ending = view("worker", S.STOPPING, since=100.0, died_at=99.99, death=dead, leaving=dead)
    waits = view("worker", S.BACKOFF, instance="", leaving=dead)
    cleans = view("worker", S.CLEANING, instance="", cleaned=True, leaving=dead)
    begins = view("worker", S.STARTING, instance="i2", leaving=dead)
    again = view("worker", instance="i2", leaving=dead)
    steps = played(
        *(at(100.0 + i, v) for i, v in enumerate((ending, ending, waits, waits, cleans, begins, again, again)))
    )
    assert {(s.group, s.component) for s in steps} == {("", "worker")}
    assert [(s.phase, round(s.seconds, 2)) for s in steps] == [
        ("seen", 0.01),
        ("stopped", 2.01),
        ("clean", 4.01),
        ("ready", 6.01),
    ]


def test_a_second_fault_begins_anew() -> None:
    dead = replace(KILLED, component="worker")
    first = view("worker", S.STOPPING, since=100.0, leaving=dead)
    again = view("worker", S.STOPPING, since=105.0, leaving=dead, instance="i2")
    ready = view("worker", instance="i3")
    found = told(
        at(100.0, first), at(104.0, view("worker", S.STARTING, instance="i2")), at(105.0, again), at(107, ready)
    )
    assert found == [
        ("seen", 0.0),
        ("stopped", 4.0),
        ("clean", 4.0),
        ("seen", 0.0),
        ("stopped", 2.0),
        ("clean", 2.0),
        ("ready", 2.0),
    ]


def test_of_another_nodes_fault_nothing_is_seen_here() -> None:
    theirs = replace(KILLED, component="rank/serve/7")
    stop = serve(record(Stage.STOP, 2, cause=theirs, by="n3"), learned_at=100.0)
    found = told(at(99.0), at(100.0, group=stop), at(104.0, *both(S.STOPPED, instance=""), group=stop))
    assert found == [("stopped", 4.0)]


def test_a_lost_ring_is_seen_when_it_is_decided() -> None:
    stop = life(Stage.STOP, Cause(Reason.STORE, "the store has lost its data"))
    assert told(at(99.0), at(100.0, group=stop)) == [("seen", 0.0)]


@pytest.mark.parametrize(("by", "expected"), [("n0", [("seen", 12.0)]), ("n2", [])])
def test_a_node_that_is_gone_is_timed_from_its_absence_where_that_was_found(by: str, expected: list[object]) -> None:
    gone = Cause(Reason.EXITED, "n1 is gone", "", "n1/serve")
    stop = serve(record(Stage.STOP, 2, cause=gone, by=by), learned_at=100.0)
    absent = {"n1": Absence(88.0, frozenset({"serve"}))}
    assert told(at(99.0, absent=absent), at(100.0, group=stop, absent=absent)) == expected


@pytest.mark.parametrize(
    ("stage", "cause", "wanted"),
    [
        (Stage.STOP, Cause(Reason.OPERATOR, "restart serve by root"), True),
        (Stage.STOP, Cause(Reason.COUPLED, "decode restarts"), True),
        (Stage.FAILED, KILLED, True),
        (Stage.STOP, KILLED, False),
    ],
)
def test_what_is_no_recovery(stage: Stage, cause: Cause, wanted: bool) -> None:
    group = life(stage, cause, wanted=wanted)
    assert told(at(99.0), at(100.0, group=group), at(101.0, *both(S.STOPPED, instance=""), group=group)) == []


def test_a_group_that_is_given_up_on_the_way_goes_no_further() -> None:
    failed = life(Stage.FAILED)
    rest = both(S.STOPPED, instance="")
    found = told(at(99.0), at(100.0, group=STOP), at(101.0, group=failed), at(102.0, *rest, group=failed))
    assert found == [("seen", 0.0)]


def test_what_runs_when_the_daemon_starts_is_no_recovery() -> None:
    ready = both(S.READY, generation=2)
    assert told(at(100.0, *ready, group=SERVES), at(101.0, *ready, group=SERVES)) == []


def test_a_life_that_is_learned_at_go_has_its_phases_at_once() -> None:
    found = told(at(99.0), at(103.0, group=GO), at(104.0, *both(S.STARTING, generation=2, instance="i2"), group=GO))
    assert found == [("seen", 0.0), ("stopped", 1.0), ("clean", 1.0), ("go", 1.0)]


@pytest.mark.parametrize(
    ("listed", "leaving", "serves"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_serving_takes_the_router_where_it_is_here(listed: bool, leaving: bool, serves: bool) -> None:
    route = Route(A, "serve", "n0", Role.REGULAR, "http://127.0.0.1:1")
    members = {A: RouteView(route, Judged(Standing.IN, ""), listed, leaving)}
    router = RouterView("vllm-router", "http://127.0.0.1:2", members)
    ready = both(S.READY, generation=2, instance="i2")
    found = told(at(99.0), at(103.0, group=SERVES), at(110.0, *ready, group=SERVES, router=router))
    assert (found[-1][0] == "serving") is serves
    assert ("ready", 7.0) in found


def test_an_unhealthy_component_that_recovers_has_had_no_recovery() -> None:
    sick = view("worker", S.UNHEALTHY, checks={"acts": FAILING})
    assert told(at(99.0), at(100.0, sick), at(101.0)) == []
