"""What one component needs next: every state, whether it is wanted, asked to restart, or at fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import (
    DEATH,
    FAILING,
    ME,
    PASSED,
    PLANES,
    RANKS,
    START_TIMEOUT_S,
    record,
    serve,
    snapshot,
    view,
)
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import Stage
from yrnode.model.refusal import Refusal
from yrnode.model.snapshot import ComponentView, Failure, Snapshot
from yrnode.model.state import RUNNING, TRANSITIONS, Move, State
from yrnode.model.verdict import Tally
from yrnode.policy import component

S, M, R = State, Move, Reason
AGAIN = Cause(R.OPERATOR, "restart worker by root")
AWAY = Cause(R.SHUTDOWN, "yrnode goes down")
PORT = Cause(R.RESIDUE, "port 1 is not free")
BAD = Cause(R.CONFIGURATION, "refused its command line")
OLD = Failure(99.0, 1.0, DEATH)
GATED = {"gate": PASSED, "acts": PASSED}


def decide(c: ComponentView, *others: ComponentView, **facts: Any) -> tuple[Move, Reason] | None:
    """(move, reason) for `c` among the others, or None."""
    s = snapshot(c, *others, **facts)
    action = component.decide(s.components[c.name], s)
    if action is None:
        return None
    assert isinstance(action.move, Move)
    assert action.target == c.name
    assert action.cause.text
    assert action.move in TRANSITIONS[c.state]
    return action.move, action.cause.reason


# A single component: the worker, with etcd ready below it.
SINGLE: list[tuple[State, dict[str, Any], tuple[Move, Reason] | None]] = [
    (S.STOPPED, {}, (M.CLEAN, R.START)),
    (S.STOPPED, {"restart": AGAIN}, (M.CLEAN, R.OPERATOR)),
    (S.STOPPED, {"leaving": DEATH}, (M.CLEAN, R.EXITED)),
    (S.STOPPED, {"wanted": False}, None),
    (S.CLEANING, {}, None),
    (S.CLEANING, {"cleaned": True}, (M.START, R.START)),
    (S.CLEANING, {"cleaned": True, "cause": DEATH}, (M.START, R.EXITED)),
    (S.CLEANING, {"blocked": PORT}, (M.GIVE_UP, R.RESIDUE)),
    (S.CLEANING, {"wanted": False, "cleaned": True, "unwanted": AWAY}, (M.STOP, R.SHUTDOWN)),
    (S.STARTING, {}, None),
    (S.STARTING, {"checks": GATED}, (M.READY, R.PROVEN)),
    (S.STARTING, {"checks": GATED, "pid": None}, None),
    (S.STARTING, {"checks": {"acts": FAILING}}, None),
    (S.STARTING, {"deadline": 100.0}, (M.STOP, R.START_TIMEOUT)),
    (S.STARTING, {"deadline": 100.1}, None),
    (S.STARTING, {"deadline": 100.0, "checks": GATED}, (M.READY, R.PROVEN)),
    (S.STARTING, {"death": DEATH}, (M.STOP, R.EXITED)),
    (S.STARTING, {"death": DEATH, "checks": GATED}, (M.STOP, R.EXITED)),
    (S.STARTING, {"restart": AGAIN}, (M.STOP, R.OPERATOR)),
    (S.STARTING, {"wanted": False, "unwanted": AWAY}, (M.STOP, R.SHUTDOWN)),
    (S.READY, {}, None),
    (S.READY, {"death": DEATH}, (M.STOP, R.EXITED)),
    (S.READY, {"checks": {"acts": FAILING}}, (M.STOP, R.CHECK)),
    (S.READY, {"checks": {"observes": FAILING}}, None),
    (S.READY, {"restart": AGAIN}, (M.STOP, R.OPERATOR)),
    (S.READY, {"wanted": False, "unwanted": AWAY}, (M.STOP, R.SHUTDOWN)),
    (S.READY, {"wanted": False}, (M.STOP, R.OPERATOR)),
    (S.UNHEALTHY, {}, (M.RECOVER, R.RECOVERED)),
    (S.UNHEALTHY, {"death": DEATH}, (M.STOP, R.EXITED)),
    (S.UNHEALTHY, {"checks": {"acts": FAILING}}, (M.STOP, R.CHECK)),
    (S.UNHEALTHY, {"restart": AGAIN}, (M.STOP, R.OPERATOR)),
    (S.UNHEALTHY, {"wanted": False}, (M.STOP, R.OPERATOR)),
    (S.STOPPING, {}, None),
    (S.STOPPING, {"wanted": False}, None),
    (S.STOPPING, {"gone": True, "leaving": DEATH, "history": (OLD,)}, (M.WAIT, R.EXITED)),
    (S.STOPPING, {"gone": True, "leaving": DEATH, "history": (OLD,) * 6}, (M.GIVE_UP, R.EXITED)),
    (S.STOPPING, {"gone": True, "leaving": BAD, "history": (Failure(99, 0, BAD),)}, (M.GIVE_UP, R.CONFIGURATION)),
    (S.STOPPING, {"gone": True, "leaving": AGAIN, "history": (OLD,)}, (M.REST, R.GONE)),
    (S.STOPPING, {"gone": True, "leaving": DEATH, "history": (OLD,), "restart": AGAIN}, (M.REST, R.GONE)),
    (S.STOPPING, {"gone": True, "leaving": DEATH, "history": (OLD,), "wanted": False}, (M.REST, R.GONE)),
    (S.STOPPING, {"gone": True}, (M.REST, R.GONE)),
    (S.BACKOFF, {"deadline": 100.1, "leaving": DEATH}, None),
    (S.BACKOFF, {"deadline": 100.0, "leaving": DEATH}, (M.CLEAN, R.EXITED)),
    (S.BACKOFF, {"deadline": 900.0, "restart": AGAIN}, (M.CLEAN, R.OPERATOR)),
    (S.BACKOFF, {"deadline": 900.0, "wanted": False}, (M.STOP, R.OPERATOR)),
    (S.FAILED, {}, None),
    (S.FAILED, {"restart": AGAIN}, (M.CLEAN, R.OPERATOR)),
    (S.FAILED, {"wanted": False}, (M.STOP, R.OPERATOR)),
]


@pytest.mark.parametrize(("state", "facts", "expected"), SINGLE)
def test_a_single_component(state: State, facts: dict[str, Any], expected: tuple[Move, Reason] | None) -> None:
    assert decide(view("worker", state, **facts)) == expected


def test_the_table_has_every_state() -> None:
    for rows in (SINGLE, MEMBER):
        assert {row[0] for row in rows} == set(State)


# A rank, whose group decides.
BUMPED = record(Stage.STOP, 2, cause=replace(DEATH, component="rank/serve/1"))
GIVEN_UP = record(Stage.FAILED, 2, cause=replace(DEATH, component="rank/serve/1"))
GO = record(Stage.GO, 1, members=(ME,))
MEMBER: list[tuple[State, Any, dict[str, Any], tuple[Move, Reason] | None]] = [
    (S.STOPPED, BUMPED, {}, (M.CLEAN, R.EXITED)),
    (S.STOPPED, GO, {}, None),
    (S.STOPPED, GIVEN_UP, {}, (M.GIVE_UP, R.EXITED)),
    (S.CLEANING, BUMPED, {}, None),
    (S.CLEANING, BUMPED, {"cleaned": True}, None),
    (S.CLEANING, BUMPED, {"blocked": PORT}, None),
    (S.CLEANING, GIVEN_UP, {"blocked": PORT}, (M.GIVE_UP, R.EXITED)),
    (S.CLEANING, GO, {"cleaned": False, "generation": 0}, None),
    (S.CLEANING, GO, {"cleaned": True, "generation": 0}, (M.START, R.START)),
    # once a generation
    (S.CLEANING, GO, {"cleaned": True, "generation": 1}, None),
    (S.STARTING, GO, {}, None),
    (S.STARTING, GO, {"checks": GATED}, (M.READY, R.PROVEN)),
    # the dead are ended at once, whatever the store says; every other fault is the group's to judge
    (S.STARTING, GO, {"death": DEATH}, (M.STOP, R.EXITED)),
    (S.STARTING, GO, {"death": DEATH, "checks": GATED}, (M.STOP, R.EXITED)),
    (S.STARTING, GO, {"deadline": 1.0}, None),
    (S.STARTING, BUMPED, {}, (M.STOP, R.GROUP)),
    (S.READY, GO, {}, None),
    (S.READY, GO, {"death": DEATH}, (M.STOP, R.EXITED)),
    (S.READY, GO, {"checks": {"acts": FAILING}}, (M.UNHEALTHY, R.CHECK)),
    (S.READY, GO, {"checks": {"observes": FAILING}}, None),
    (S.READY, BUMPED, {}, (M.STOP, R.GROUP)),
    (S.READY, GIVEN_UP, {}, (M.STOP, R.GROUP)),
    (S.READY, record(Stage.GO, 2), {}, (M.STOP, R.GROUP)),
    (S.UNHEALTHY, GO, {}, (M.RECOVER, R.RECOVERED)),
    (S.UNHEALTHY, GO, {"death": DEATH}, (M.STOP, R.EXITED)),
    (S.UNHEALTHY, GO, {"checks": {"acts": FAILING}}, None),
    (S.UNHEALTHY, BUMPED, {}, (M.STOP, R.GROUP)),
    (S.STOPPING, BUMPED, {}, None),
    (S.STOPPING, BUMPED, {"gone": True}, (M.REST, R.GONE)),
    (S.STOPPING, GIVEN_UP, {"gone": True}, (M.GIVE_UP, R.EXITED)),
    (S.BACKOFF, BUMPED, {}, (M.CLEAN, R.EXITED)),
    (S.FAILED, GIVEN_UP, {}, None),
    (S.FAILED, BUMPED, {}, (M.REST, R.EXITED)),
]


@pytest.mark.parametrize(("state", "group", "facts", "expected"), MEMBER)
def test_a_rank(state: State, group: Any, facts: dict[str, Any], expected: tuple[Move, Reason] | None) -> None:
    assert decide(view(RANKS[0], state, **facts), group=serve(group)) == expected


@pytest.mark.parametrize("state", State)
def test_an_unwanted_group_stops_its_ranks_from_every_state(state: State) -> None:
    found = decide(view(RANKS[0], state), group=serve(GO, wanted=False, unwanted=AWAY))
    at_rest = state in (S.STOPPED, S.STOPPING)
    assert found == (None if at_rest else (M.STOP, R.SHUTDOWN))


def test_the_guilty_rank_stops_for_its_own_fault_and_the_others_for_the_group() -> None:
    s = snapshot(group=serve(BUMPED))
    guilty, innocent = (component.decide(s.components[name], s) for name in (RANKS[1], RANKS[0]))
    assert guilty is not None
    assert innocent is not None
    assert guilty.cause == BUMPED.cause
    assert innocent.cause.text == "group serve restarts as generation 2"
    assert innocent.cause.evidence == "rank/serve/1: exited: killed by SIGKILL"


# What a component needs before it may start.
LOWER = [("worker", "etcd"), (RANKS[0], "worker"), (RANKS[0], "etcd"), ("router", RANKS[1]), ("router", "etcd")]


@pytest.mark.parametrize(("name", "below"), LOWER)
@pytest.mark.parametrize("state", [s for s in State if s is not State.READY])
def test_nothing_begins_above_a_plane_that_is_not_ready(name: str, below: str, state: State) -> None:
    stop = serve(record(Stage.STOP)) if name.startswith("rank") else None
    go = serve(record(Stage.GO)) if name.startswith("rank") else None
    lower = view(below, state)
    assert decide(view(name, S.STOPPED), lower, group=stop) is None
    assert decide(view(name, S.BACKOFF, deadline=0.0), lower, group=stop) is None
    # ready when it was cleaned, and gone since
    assert decide(view(name, S.CLEANING, cleaned=True, generation=0), lower, group=go) is None
    assert f"{below} ({state.value})" in component.waits_for(view(name, S.STOPPED), snapshot(lower))


def test_nothing_but_etcd_begins_without_the_store() -> None:
    assert decide(view("etcd", S.STOPPED), store_available=False) == (M.CLEAN, R.START)
    assert decide(view("etcd", S.CLEANING, cleaned=True), store_available=False) == (M.START, R.START)
    assert decide(view("worker", S.STOPPED), store_available=False) is None
    assert decide(view("worker", S.CLEANING, cleaned=True), store_available=False) is None


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("state", sorted(RUNNING))
def test_a_lost_store_or_sick_etcd_stops_nothing_above_it(name: str, state: State) -> None:
    if name == "etcd":
        return
    for etcd in (
        view("etcd", S.UNHEALTHY, checks={"acts": FAILING}),
        view("etcd", S.FAILED),
        view("etcd", death=DEATH),
    ):
        found = decide(view(name, state), etcd, store_available=False)
        assert found is None or found[0] is not M.STOP


def test_a_sick_worker_is_kept_while_etcd_is_away() -> None:
    sick = view("worker", checks={"acts": FAILING})
    assert decide(sick, store_available=False) == (M.UNHEALTHY, R.CHECK)
    assert decide(sick, view("etcd", S.STARTING)) == (M.UNHEALTHY, R.CHECK)
    assert decide(view("worker", S.UNHEALTHY, checks={"acts": FAILING}), store_available=False) is None
    assert decide(view("worker", S.UNHEALTHY, checks={"acts": FAILING})) == (M.STOP, R.CHECK)
    # a dead one has nothing to keep
    assert decide(view("worker", death=DEATH), store_available=False) == (M.STOP, R.EXITED)


def test_stops_go_from_the_top_plane_down() -> None:
    def who_stops(s: Snapshot) -> set[str]:
        found = {n: component.decide(c, s) for n, c in s.components.items()}
        return {n for n, a in found.items() if a is not None and a.move is M.STOP}

    def closing(*views: ComponentView) -> Snapshot:
        unwanted = [replace(v, wanted=False) for v in views]
        return snapshot(*unwanted, group=serve(GO, wanted=False))

    everything = [view(name) for name in PLANES]
    assert who_stops(closing(*everything)) == {"router"}
    assert who_stops(closing(*everything[:4], view("router", S.STOPPING))) == set()
    assert who_stops(closing(*everything[:4], view("router", S.STOPPED))) == set(RANKS)
    one_left = [*everything[:3], view(RANKS[1], S.STOPPING), view("router", S.STOPPED)]
    assert who_stops(closing(*one_left)) == {RANKS[0]}
    ranks_gone = [view(n, S.STOPPED) for n in (*RANKS, "router")]
    assert who_stops(closing(*everything[:2], *ranks_gone)) == {"worker"}
    assert who_stops(closing(everything[0], view("worker", S.STOPPED), *ranks_gone)) == {"etcd"}


def test_one_component_stops_alone_when_only_it_is_asked_to() -> None:
    assert decide(view("etcd", wanted=False)) == (M.STOP, R.OPERATOR)
    assert decide(view("worker", restart=AGAIN)) == (M.STOP, R.OPERATOR)


def test_who_waits_sees_whose_restart_is_due() -> None:
    assert decide(view("worker", S.STOPPED), view("etcd", restart=AGAIN)) is None


def test_a_start_that_takes_too_long_names_what_was_missing() -> None:
    slow = view("worker", S.STARTING, deadline=100.0, checks={"gate": Tally(FAILING.result)})
    found = component.fault(slow, snapshot(slow))
    assert found is not None
    assert (found.text, found.evidence) == (f"not ready {START_TIMEOUT_S:g} s after its start", "gate: HTTP 503")
    hidden = view("worker", S.STARTING, deadline=100.0, pid=None, checks=GATED)
    found = component.fault(hidden, snapshot(hidden))
    assert found is not None
    assert found.evidence == "its main process was not found"


def test_delays_and_causes_of_a_restart() -> None:
    stopping = view("worker", S.STOPPING, gone=True, leaving=DEATH, history=(OLD, OLD))
    s = snapshot(stopping)
    action = component.decide(stopping, s)
    assert action is not None
    assert (action.delay, action.cause.component) == (1.0, "worker")
    assert action.cause.text == "exited: killed by SIGKILL; restart 2 of 5, in 1.0 s"


def test_what_is_not_wanted_waits_for_nothing() -> None:
    assert component.waits_for(view("worker", S.STOPPED, wanted=False), snapshot(view("etcd", S.FAILED))) == []


def test_a_check_says_nothing_against_a_worker_just_after_an_outage() -> None:
    sick = view("worker", S.UNHEALTHY, checks={"acts": FAILING})
    assert decide(sick, store_since=100.0 - component.STORE_STEADY_S + 0.1) is None
    assert decide(sick, store_since=100.0 - component.STORE_STEADY_S) == (M.STOP, R.CHECK)
    # what is dead or hangs is no afterpains
    assert decide(view("worker", death=DEATH), store_since=99.9) == (M.STOP, R.EXITED)


REFUSAL = Refusal(1.0, "alarm NOSPACE on member a")


def test_while_the_store_refuses_writes_no_worker_is_started_or_restarted() -> None:
    for worker in (view("worker", S.STOPPED), view("worker", S.CLEANING, cleaned=True)):
        assert decide(worker, store_refusal=REFUSAL) is None
    sick = view("worker", checks={"acts": FAILING})
    assert decide(sick, store_refusal=REFUSAL) == (M.UNHEALTHY, R.CHECK)
    # it dies, is swept, and waits
    assert decide(view("worker", death=DEATH), store_refusal=REFUSAL) == (M.STOP, R.EXITED)
    assert "store (refuses writes)" in component.waits_for(view("worker", S.STOPPED), snapshot(store_refusal=REFUSAL))


def test_a_store_that_refuses_writes_holds_up_neither_etcd_nor_the_ranks() -> None:
    assert decide(view("etcd", S.STOPPED), store_refusal=REFUSAL) == (M.CLEAN, R.START)
    assert decide(view("etcd", death=DEATH), store_refusal=REFUSAL) == (M.STOP, R.EXITED)
    assert component.missing(view("rank/serve/0", S.CLEANING), snapshot(store_refusal=REFUSAL)) == []


@pytest.mark.parametrize(
    ("facts", "begins"),
    [
        ({"started": 3, "cleaned": 4}, True),
        # begun, and not found: a loss, which its group's evidence tells
        ({"started": 4, "cleaned": 4}, False),
        # never promised to be clean for this life
        ({"started": 3, "cleaned": 3}, False),
    ],
)
@pytest.mark.parametrize("member", [True, False])
def test_a_daemon_that_was_gone_between_go_and_the_start_begins_what_it_has_promised(
    facts: dict[str, int], begins: bool, member: bool
) -> None:
    group = serve(record(Stage.GO, 4, members=("n0",) if member else ("n1",)), **facts)
    found = decide(view(RANKS[0], S.STOPPED, generation=0, instance=""), group=group)
    assert (found is not None) is (begins and member)
    if found is not None:
        assert found[0] is M.CLEAN
