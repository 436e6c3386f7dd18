"""Groups that restart together: which, when, and whose fault it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.build import RANKS, board, record, serve, snapshot, spec, view
from yrnode.model.board import Intent, Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, GroupRecord, Stage
from yrnode.model.snapshot import GroupView, Snapshot
from yrnode.model.state import Move, State
from yrnode.node import operator, world
from yrnode.policy import coupling, group, plan

DEATH = Cause(Reason.EXITED, "exited: killed by SIGKILL", "", RANKS[0])


def faulty(other: GroupRecord | None, **facts: object) -> tuple[GroupView, Snapshot]:
    """A rank of `serve` has died; `other` is the record of the group that it restarts with."""
    g = replace(serve(record(n=3, fails=1)), coupled=("decode",))
    dead = view(RANKS[0], State.STOPPING, generation=3, leaving=DEATH)
    s = snapshot(dead, view(RANKS[1], generation=3), group=replace(g, started=3))
    stored = {} if other is None else {"decode": Stored(other, 7)}
    s = replace(s, board=replace(s.board, records={**s.board.records, **stored}), **facts)  # type: ignore[arg-type]
    return s.groups["serve"], s


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("there", [True, False])
def test_only_one_that_lives_begins_a_new_life(stage: Stage, there: bool) -> None:
    other = record(stage, 8, fails=2, members=("n5",), backoff_s=9.0)
    g, s = faulty(other if there else None)
    action = group.decide(g, s)
    assert action is not None
    assert (action.move, action.record.n, action.record.fails) == (GroupMove.BUMP, 4, 2)
    if not there or stage is not Stage.GO:
        assert action.also == {}
        return
    (also,) = action.also.values()
    assert (also.n, also.stage, also.fails, also.members) == (9, Stage.STOP, 2, ("n5",))
    assert also.backoff_s == 0.0
    assert also.cause == Cause(Reason.COUPLED, "coupled: serve", f"{RANKS[0]}: exited: killed by SIGKILL")
    assert not also.cause.fault, "it is no fault of that group"


@pytest.mark.parametrize("word", [Intent(1, paused=True), Intent(1, run=False)])
def test_one_in_an_operators_hands_is_left_alone_and_holds_nobody(word: Intent) -> None:
    said = {"decode": word}
    g, s = faulty(record(n=8), intents=said)
    s = replace(s, board=replace(s.board, intents=said))
    action = group.decide(g, s)
    assert action is not None
    assert (action.move, action.also) == (GroupMove.BUMP, {})


def test_a_newer_record_of_ours_counts_on() -> None:
    """The store was put back from an older copy, and this node has not yet put its own record there."""
    g, s = faulty(record(n=8))
    mine = replace(serve(record(n=11)), name="decode", members=())
    s = replace(s, groups={**s.groups, "decode": mine})
    action = group.decide(g, s)
    assert action is not None
    assert action.also["decode"].n == 12


def test_the_last_fault_of_a_row_ends_this_group_alone() -> None:
    g, s = faulty(record(n=8))
    g = replace(g, record=replace(g.record, fails=2))
    s = replace(s, groups={"serve": g}, board=s.board.with_record("serve", g.record, 1))
    action = group.decide(g, s)
    assert action is not None
    assert (action.move, action.also) == (GroupMove.FAIL, {})


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3).map(tuple)))
def test_coupled_groups_are_classes(names: dict[str, tuple[str, ...]]) -> None:
    found = coupling.coupled(names)
    for name, others in found.items():
        assert name not in others
        for other in others:
            assert set(found[other]) | {other} == set(others) | {name}
    for name, others in names.items():
        assert {o for o in others if o in names and o != name} <= set(found[name])


def test_a_group_that_an_operator_keeps_stopped_takes_nobody_along() -> None:
    """What starts it again is a restart of its own, and takes the others along then."""
    stop = Cause(Reason.OPERATOR, "stop serve")
    g, s = faulty(record(n=8), intents={"serve": Intent(1, run=False)})
    g = replace(g, wanted=False, unwanted=stop)
    s = replace(s, groups={"serve": g}, board=replace(s.board, intents=s.intents))
    action = group.decide(g, s)
    assert action is not None
    assert (action.move, action.cause, action.also) == (GroupMove.BUMP, stop, {})
    # a node that goes takes its part of the group away: that is a new life, and the others go along
    action = group.decide(g, replace(s, intents={}, board=replace(s.board, intents={})))
    assert action is not None
    assert (action.move, set(action.also)) == (GroupMove.BUMP, {"decode"})


def test_nobody_starts_in_the_round_that_takes_his_group_along() -> None:
    """He would start for a life that ends with this very transaction."""
    _, s = faulty(record(n=8, members=("n0",)))
    rank = view("rank/serve/1", State.CLEANING, generation=7, cleaned=True)
    rank = replace(rank, spec=replace(rank.spec, name="rank/decode/0", group="decode"))
    mine = replace(serve(record(n=8, members=("n0",))), name="decode", members=(rank.name,))
    s = replace(s, groups={**s.groups, "decode": mine}, components={**s.components, rank.name: rank})
    moves = {a.target: a.move for a in plan.decide(s)}
    assert moves["serve"] is GroupMove.BUMP
    assert rank.name not in moves
    alone = replace(s, groups={"decode": mine}, components={rank.name: rank})
    assert [a.move for a in plan.decide(alone) if a.target == rank.name] == [Move.START]


@pytest.mark.parametrize(
    ("verb", "target", "wanted", "taken"),
    [
        ("restart", "serve", True, ("decode",)),
        # the start of what was stopped is its new life
        ("stop", "serve", True, ()),
        ("start", "serve", False, ("decode",)),
        ("start", "serve", True, ()),
        # a group whose node goes begins anew with it, or waits for it
        ("stop", "n0", True, ("decode",)),
        ("start", "n0", False, ()),
        ("stop", "all", True, ("decode",)),
        ("restart", "all", True, ("decode",)),
    ],
)
def test_an_operator_is_told_who_restarts_too(verb: str, target: str, wanted: bool, taken: tuple[str, ...]) -> None:
    places = {"serve": world.GroupPlace(("n0",), coupled=("decode",))}
    w = world.make([spec(name) for name in RANKS], 0.0, "n0", places)
    w.update_group("serve", record=record(n=3), wanted=wanted)
    w.board = board(w.groups["serve"], {}).with_record("decode", record(n=5), 8)
    assert operator.radius(w, verb, target).coupled == taken
    # one that stops already begins anew by itself
    w.board = w.board.with_record("decode", record(Stage.STOP, 5), 9)
    assert operator.radius(w, verb, target).coupled == ()
