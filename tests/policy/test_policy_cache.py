"""The cache group: workers restart alone, all of them when their ring is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from yrnode.model.action import Action
from yrnode.model.board import Board, Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupMove, GroupRecord, Member, Phase, Stage
from yrnode.model.refusal import Refusal
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Move, Plane, State
from yrnode.model.verdict import Result, Tally, Verdict
from yrnode.policy import phase
from yrnode.policy.plan import decide

START = Cause(Reason.START, "first start")
DEATH = Cause(Reason.EXITED, "exited: killed by SIGKILL", "", "worker")
FAILING = Tally(Result(Verdict.FAIL, "not in the ring"), 0, 15, 0, True, True)


def spec(name: str, plane: Plane, lives_with: str | None = None) -> ComponentSpec:
    checks = (CheckSpec("ring", "worker-ring", 2, 2, act=False), CheckSpec("kv", "worker-kv", 1, 2))
    here = Path("/x")
    return ComponentSpec(name, name, plane, ("x",), {}, here, here, lives_with=lives_with, checks=checks)


def view(name: str, plane: Plane, state: State, **facts: Any) -> ComponentView:
    checks = {"ring": Tally(passed=True), "kv": Tally(passed=True), **facts.pop("checks", {})}
    lives_with = "cache" if plane is Plane.CACHE else None
    return ComponentView(spec(name, plane, lives_with), state, 0.0, checks=checks, **facts)


def decided(
    record: GroupRecord,
    worker: ComponentView,
    store_id: str = "a",
    available: bool = True,
    refusal: Refusal | None = None,
    told: Mapping[str, Member] | None = None,
    nodes: tuple[str, ...] = ("n0",),
    fresh: bool = True,
    proven_at: float = 100.0,
    store_since: float = 0.0,
) -> list[Action]:
    """What is decided with the shared keys as this node keeps them, but for what it has to tell."""
    etcd = view("etcd", Plane.STORE, State.READY)
    group = GroupView("cache", record, ("worker",), GroupKind.CACHE, nodes)
    s = Snapshot(100.0, 0.0, {"etcd": etcd, "worker": worker}, {"cache": group}, available, store_since)
    s = replace(s, store_refusal=refusal, me="n0", fresh=fresh, proven_at=proven_at)
    members = {"n0": phase.own(group, s), **(told or {})}
    s = replace(s, board=Board(9, store_id, {"cache": Stored(record, 7)}, {"cache": members}))
    return decide(s)


def moves(record: GroupRecord, worker: ComponentView, **facts: Any) -> dict[str, tuple[Any, Cause]]:
    return {a.target: (a.move, a.cause) for a in decided(record, worker, **facts)}


GO = GroupRecord(1, Stage.GO, START, store="a")
STOP = GroupRecord(2, Stage.STOP, START)


def ready(**facts: Any) -> ComponentView:
    return view("worker", Plane.CACHE, State.READY, life=1, generation=3, pid=7, **facts)


def test_a_store_with_other_data_restarts_the_group() -> None:
    move, cause = moves(GO, ready(), store_id="b")["cache"]
    assert move is GroupMove.BUMP
    assert cause.reason is Reason.STORE
    assert "b instead of a" in cause.evidence


@pytest.mark.parametrize(
    "facts",
    [{"store_id": "a"}, {"store_id": ""}, {"store_id": "b", "available": False}],
    ids=["the same", "not known", "unavailable"],
)
def test_no_evidence(facts: dict[str, Any]) -> None:
    assert moves(GO, ready(), **facts) == {}


def test_a_record_that_knows_no_store_is_no_evidence() -> None:
    assert moves(replace(GO, store=""), ready(), store_id="b") == {}


def test_a_ring_without_the_worker_restarts_the_group_not_the_worker_alone() -> None:
    found = moves(GO, ready(checks={"ring": FAILING}))
    assert found["cache"][0] is GroupMove.BUMP
    assert "worker" not in found


def test_a_store_that_refuses_writes_stops_no_worker_and_lets_none_go() -> None:
    full = Refusal(1.0, "alarm NOSPACE on member a")
    assert moves(GO, ready(), store_id="b", refusal=full) == {}
    # no worker could register: the one that the ring has lost is kept
    assert moves(GO, ready(checks={"ring": FAILING}), refusal=full) == {}
    clean = view("worker", Plane.CACHE, State.CLEANING, cleaned=True)
    assert moves(STOP, clean, refusal=full) == {}


@pytest.mark.parametrize(
    ("proven_at", "store_since", "starts"),
    [
        (89.9, 0.0, False),  # it was read before the worker was stopped
        (90.0, 0.0, True),
        (95.0, 95.1, False),  # the store was away meanwhile: another one may have come back
        (95.1, 95.1, True),
    ],
)
def test_a_worker_starts_on_what_was_read_since(proven_at: float, store_since: float, starts: bool) -> None:
    clean = replace(view("worker", Plane.CACHE, State.CLEANING, cleaned=True, life=1), since=90.0)
    found = moves(GO, clean, proven_at=proven_at, store_since=store_since)
    assert (found.get("worker", ("",))[0] is Move.START) is starts


def test_a_dead_worker_restarts_alone() -> None:
    found = moves(GO, ready(death=DEATH))
    assert found == {"worker": (Move.STOP, DEATH)}
    backoff = view("worker", Plane.CACHE, State.BACKOFF, life=1, generation=3, leaving=DEATH)
    assert moves(GO, backoff)["worker"][0] is Move.CLEAN
    cleaned = view("worker", Plane.CACHE, State.CLEANING, life=1, generation=3, cleaned=True)
    assert moves(GO, cleaned)["worker"][0] is Move.START


def test_a_worker_of_an_earlier_life_is_stopped() -> None:
    assert moves(STOP, ready())["worker"][0] is Move.STOP
    assert moves(replace(GO, n=2), ready())["worker"][0] is Move.STOP


def test_go_when_the_worker_is_clean_and_keeps_the_stores_identity() -> None:
    running = view("worker", Plane.CACHE, State.STOPPING, life=1, generation=3)
    assert moves(STOP, running) == {}
    cleaning = view("worker", Plane.CACHE, State.CLEANING, life=1, generation=3)
    assert moves(STOP, cleaning) == {}
    (action,) = decided(STOP, replace(cleaning, cleaned=True), store_id="b")
    assert action.move is GroupMove.GO
    assert action.record == replace(STOP, stage=Stage.GO, store="b", members=("n0",))


CLEAN = view("worker", Plane.CACHE, State.CLEANING, cleaned=True)


@pytest.mark.parametrize("facts", [{"store_id": ""}, {"available": False}, {"fresh": False}])
def test_no_go_in_a_store_that_is_not_known(facts: dict[str, Any]) -> None:
    assert moves(STOP, CLEAN, **facts) == {}


def test_a_worker_that_nobody_wants_does_not_clear_the_store() -> None:
    stopped = view("worker", Plane.CACHE, State.STOPPED, wanted=False)
    assert moves(STOP, stopped) == {}


@pytest.mark.parametrize(
    ("other", "goes"),
    [
        (Member(2, Phase.CLEAN), True),
        # gone, and not to come back by itself: it need not be waited for
        (Member(2, Phase.HELD), True),
        (Member(2, Phase.FAILED), True),
        (Member(2, Phase.STOPPING), False),
        (Member(1, Phase.CLEAN), False),
        (None, False),
    ],
)
def test_all_workers_must_be_gone(other: Member | None, goes: bool) -> None:
    told = {"n1": other} if other else {}
    assert (moves(STOP, CLEAN, nodes=("n0", "n1"), told=told) != {}) is goes


@pytest.mark.parametrize("facts", [{"store_id": "b"}, {"fresh": False}])
def test_a_worker_starts_alone_only_in_the_store_that_the_go_was_for(facts: dict[str, Any]) -> None:
    cleaned = view("worker", Plane.CACHE, State.CLEANING, life=1, generation=3, cleaned=True)
    assert "worker" not in moves(GO, cleaned, **facts)
    assert moves(GO, cleaned)["worker"][0] is Move.START
