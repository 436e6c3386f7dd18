"""What one node decides about a group of three: from what it keeps, and from what the others say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import DEATH, ME, RANKS, board, record, serve, snapshot, view
from yrnode.model.action import Action
from yrnode.model.board import Board, BoardMove, Fence, Intent, Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, GroupRecord, Member, Phase, Stage
from yrnode.model.snapshot import Absence, GroupView
from yrnode.model.state import Move, State
from yrnode.policy import component, gather, group, intents, phase, plan
from yrnode.policy.group import INFORM_AFTER_S

G, P = GroupMove, Phase
NODES = (ME, "n1", "n2")
CLEAN = [view(name, State.CLEANING, cleaned=True, generation=0) for name in RANKS]


def three(stage: Stage = Stage.GO, n: int = 4, **facts: Any) -> GroupView:
    kept = record(stage, n, members=NODES, **facts.pop("record", {}))
    return serve(kept, nodes=NODES, **facts)


def told(n: int, *phases: Phase | None) -> dict[str, Member]:
    return {node: Member(n, p) for node, p in zip(NODES, phases, strict=True) if p is not None}


def decide(
    g: GroupView, members: dict[str, Member], *ranks: Any, stored: Any = "same", **facts: Any
) -> Action | None:
    shared = board(g, members, **facts.pop("board", {}))
    if stored != "same":
        shared = replace(shared, records={} if stored is None else {"serve": Stored(stored, 8)})
    return group.decide(g, snapshot(*ranks, group=g, board=shared, **facts))


READY = [view(name, generation=4) for name in RANKS]
ALL_READY = told(4, P.READY, P.READY, P.READY)


def test_a_group_in_order() -> None:
    assert decide(three(), ALL_READY, *READY) is None


# reading and putting back


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("new", [record(Stage.STOP, 5), record(Stage.FAILED, 4), record(Stage.GO, 4, fails=1)])
def test_a_newer_record_is_learned_first(new: GroupRecord, fresh: bool) -> None:
    found = decide(three(), ALL_READY, *READY, stored=new, fresh=fresh)
    assert found is not None
    assert (found.move, found.record) == (G.LEARN, new)


@pytest.mark.parametrize("old", [None, record(Stage.GO, 3), record(Stage.STOP, 4)])
def test_an_older_record_is_put_back_and_nothing_else_is_done(old: GroupRecord | None) -> None:
    g = three()
    dead = view(RANKS[0], generation=4, death=DEATH)
    found = decide(g, {}, dead, READY[1], stored=old)
    assert found is not None
    assert (found.move, found.record) == (G.PUT_BACK, g.record)
    assert decide(g, {}, dead, READY[1], stored=old, fresh=False) is None
    assert decide(replace(g, busy=True), {}, dead, READY[1], stored=old) is None


def test_in_a_replaced_store_nothing_but_putting_back() -> None:
    dead = view(RANKS[0], generation=4, death=DEATH)
    assert decide(three(), ALL_READY, dead, READY[1], settled=False) is None
    assert decide(three(), ALL_READY, dead, READY[1]) is not None


def test_a_first_record_waits_for_the_end_of_a_pause() -> None:
    first = serve(group.first_record(), nodes=NODES)
    pause = {"all": Intent(1, paused=True)}
    assert decide(first, {}, stored=None, intents=pause) is None
    found = decide(first, {}, stored=None)
    assert found is not None
    assert found.move is G.PUT_BACK
    # what was lost is put back all the same
    found = decide(three(), {}, stored=None, intents=pause)
    assert found is not None


# evidence


def test_an_absent_node_is_no_evidence() -> None:
    away = {"n1": Absence(0.0)}
    assert decide(three(), told(4, P.READY, None, P.READY), *READY, absent=away) is None


@pytest.mark.parametrize(
    ("since", "dead", "ranks", "bumps"),
    [
        (89.0, {"serve"}, READY, True),
        (90.5, {"serve"}, READY, False),
        (0.0, set(), READY, False),
        # before all were ready no rank has a port
        (0.0, {"serve"}, [READY[0], view(RANKS[1], State.STARTING, generation=4)], False),
    ],
)
def test_a_lost_node_takes_its_silence_as_well(since: float, dead: set[str], ranks: list[Any], bumps: bool) -> None:
    away = {"n1": Absence(since, frozenset(dead))}
    found = decide(three(), told(4, phase.own(three(), snapshot(*ranks)).phase, None, P.READY), *ranks, absent=away)
    assert (found is not None) is bumps
    if found is not None:
        assert (found.move, found.cause.component) == (G.BUMP, "n1/serve")


def test_a_node_that_is_new_in_the_file_is_not_missed_by_the_life_before_it() -> None:
    away = {"n2": Absence(0.0, frozenset({"serve"}))}
    old = serve(record(Stage.GO, 4, members=(ME, "n1")), nodes=NODES)
    assert decide(old, told(4, P.READY, P.READY, None), *READY, absent=away) is None
    assert decide(three(), told(4, P.READY, P.READY, None), *READY, absent=away) is not None


@pytest.mark.parametrize("late", [P.STARTING, P.CLEAN])
def test_a_node_that_does_not_get_ready_in_time(late: Phase) -> None:
    at = told(4, P.READY, late, P.READY)
    assert decide(three(learned_at=31.0), at, *READY) is None
    found = decide(three(learned_at=30.0), at, *READY)
    assert found is not None
    assert found.cause.reason is Reason.START_TIMEOUT
    assert "n1" in found.cause.text
    # one that is absent may serve
    assert decide(three(learned_at=0.0), told(4, P.READY, None, P.READY), *READY) is None


def test_what_an_operator_stopped_is_free_and_a_pause_holds_everything_back() -> None:
    why = Cause(Reason.OPERATOR, "stop n0")
    g = three(wanted=False, unwanted=why, record={"fails": 2})
    found = decide(g, ALL_READY, *READY)
    assert found is not None
    assert (found.move, found.record and found.record.fails) == (G.BUMP, 0)
    for target in ("all", "serve"):
        found = decide(g, ALL_READY, *READY, intents={target: Intent(3, paused=True)})
        assert found is None or found.move is G.TELL


# go


def test_go_when_every_node_has_promised() -> None:
    g = three(Stage.STOP)
    found = decide(g, told(4, P.CLEAN, P.CLEAN, P.CLEAN), *CLEAN)
    assert found is not None
    assert found.record == replace(g.record, stage=Stage.GO)
    assert found.move is G.GO


@pytest.mark.parametrize(
    ("n1", "words"),
    [
        (None, "n1 (absent)"),
        (Member(3, P.CLEAN), "n1 (has not told of life 4)"),
        (Member(4, P.STOPPING, evidence="worker (starting)"), "n1 (stopping: worker (starting))"),
        (Member(4, P.HELD, evidence="stop n1"), "n1 (held: stop n1)"),
        (Member(4, P.CLEAN, "other"), "n1 (its cluster file differs)"),
    ],
)
def test_whom_go_waits_for(n1: Member | None, words: str) -> None:
    g = three(Stage.STOP)
    members = told(4, P.CLEAN, None, P.CLEAN) | ({"n1": n1} if n1 else {})
    assert decide(g, members, *CLEAN) is None
    s = snapshot(*CLEAN, group=g, board=board(g, members))
    assert list(gather.lacking(g, s)) == [words]
    # a fence stands for processes that are gone, not for a rank that is needed
    fenced = replace(s, board=replace(s.board, fences={"n1": Fence("op")}))
    assert list(gather.lacking(g, fenced)) == [words]


def test_a_node_that_left_the_file_is_waited_for_or_fenced() -> None:
    g = serve(record(Stage.STOP, 4, members=NODES), nodes=(ME, "n1"))
    members = {ME: Member(4, P.CLEAN), "n1": Member(4, P.CLEAN)}
    assert decide(g, members, *CLEAN) is None
    s = snapshot(*CLEAN, group=g, board=board(g, members))
    assert "yrnode fence n2 --confirm-off" in next(gather.lacking(g, s))
    found = decide(g, members, *CLEAN, board={"fences": {"n2": Fence("op", revision=5)}})
    assert found is not None
    assert found.record is not None
    assert found.record.members == (ME, "n1")


def test_a_start_takes_go_and_this_nodes_own_promise_and_happens_once() -> None:
    def start(g: GroupView, rank: Any = CLEAN[0]) -> bool:
        action = component.decide(rank, snapshot(rank, group=g))
        return action is not None and action.move is Move.START

    assert start(three())
    assert not start(three(Stage.STOP))
    assert not start(three(cleaned=3))
    assert not start(three(), replace(CLEAN[0], generation=4))


def test_nothing_of_a_later_life_is_stopped() -> None:
    later = view(RANKS[0], generation=5)
    for stage in Stage:
        assert component.decide(later, snapshot(later, group=three(stage))) is None


# telling


@pytest.mark.parametrize(
    ("ranks", "stage", "said"),
    [
        (READY, Stage.GO, P.READY),
        ([READY[0], view(RANKS[1], State.STARTING, generation=4)], Stage.GO, P.STARTING),
        ([READY[0], view(RANKS[1], State.STOPPED, generation=4)], Stage.GO, P.STARTING),
        (READY, Stage.STOP, P.STOPPING),
        (CLEAN, Stage.STOP, P.CLEAN),
        ([CLEAN[0], replace(CLEAN[1], cleaned=False)], Stage.STOP, P.STOPPING),
        ([CLEAN[0], view(RANKS[1], State.STOPPED)], Stage.STOP, P.STOPPING),
        ([view(n, State.FAILED) for n in RANKS], Stage.FAILED, P.FAILED),
    ],
)
def test_what_a_node_says(ranks: list[Any], stage: Stage, said: Phase) -> None:
    g = three(stage)
    assert phase.own(g, snapshot(*ranks, group=g)) == Member(4, said)
    if ranks[1].state is not State.STOPPED:
        found = decide(replace(g, learned_at=100.0 - INFORM_AFTER_S), {}, *ranks)
        assert found is not None
        assert (found.move, found.member) == (G.TELL, Member(4, said))
        # what only informs, and mostly passes, does not go out to everybody together with the record
        at_once = decide(g, {}, *ranks)
        assert (at_once is None) == (said in (P.STOPPING, P.STARTING))


def test_held_is_said_only_when_all_is_gone_and_never_clean() -> None:
    g = three(Stage.STOP, wanted=False, unwanted=Cause(Reason.OPERATOR, "stop n0"))
    assert phase.own(g, snapshot(*READY, group=g)).phase is P.STOPPING
    assert phase.own(g, snapshot(*CLEAN, group=g)) == Member(4, P.HELD, evidence="stop n0")


@pytest.mark.parametrize(
    ("phases", "before", "after"),
    [
        ((P.READY, P.READY, P.READY), None, 100.0),
        ((P.READY, P.READY, P.READY), 40.0, 40.0),
        # absence says nothing
        ((P.READY, None, P.READY), 40.0, 40.0),
        ((P.READY, None, P.READY), None, None),
        ((P.READY, P.STARTING, P.READY), 40.0, None),
    ],
)
def test_how_long_all_have_been_ready(phases: tuple[Any, ...], before: float | None, after: float | None) -> None:
    g = three(ready_since=before)
    assert phase.ready_since(g, board(g, told(4, *phases)), 100.0) == after


@pytest.mark.parametrize(
    ("phases", "fresh", "unsure"),
    [
        ((P.READY, P.READY, P.READY), True, ""),
        # a request would kill a survivor
        ((P.READY, None, P.READY), True, "n1 not known to serve"),
        ((P.READY, P.STARTING, None), True, "n1, n2 not known to serve"),
        ((P.READY, P.READY, P.READY), False, "what the other nodes do is not known"),
    ],
)
def test_whether_all_are_known_to_serve(phases: tuple[Any, ...], fresh: bool, unsure: str) -> None:
    g = three()
    assert phase.unsure(g, board(g, told(4, *phases)), fresh, ME) == unsure
    # one alone needs nobody's word
    alone = replace(g, nodes=(ME,))
    assert phase.unsure(alone, board(alone, {}), False, ME) == ""


# intents and fences


def moves(**facts: Any) -> dict[str, BoardMove]:
    return {a.target: a.move for a in intents.decide(snapshot(*READY, group=three(), **facts))}


def shared(**facts: Any) -> Board:
    return board(three(), ALL_READY, **facts)


def test_the_higher_intent_wins_in_whatever_store() -> None:
    one, two = Intent(1, run=False), Intent(2)
    assert moves(board=shared(intents={"serve": two}), intents={"serve": one}) == {"serve": BoardMove.HEED}
    assert moves(board=shared(intents={"serve": one}), intents={"serve": two}) == {"serve": BoardMove.SAY}
    assert moves(board=shared(), intents={"serve": two}) == {"serve": BoardMove.SAY}
    assert moves(board=shared(), intents={"serve": two}, saying=frozenset({"serve"})) == {}
    assert moves(board=shared(), intents={"serve": two}, fresh=False) == {}
    # two operators at once: the store says who was first
    other = replace(two, why="other")
    assert moves(board=shared(intents={"serve": other}), intents={"serve": two}) == {"serve": BoardMove.HEED}
    assert moves(board=shared(intents={"serve": two}), intents={"serve": two}) == {}


def test_an_intent_is_kept_before_anything_else_is_done() -> None:
    dead = view(RANKS[0], generation=4, death=DEATH)
    s = snapshot(dead, READY[1], group=three(), board=shared(intents={"serve": Intent(1, run=False)}))
    assert [a.move for a in plan.decide(s)] == [BoardMove.HEED]


def test_a_node_lifts_its_own_fence_when_nothing_old_runs_on_it() -> None:
    fenced = shared(fences={ME: Fence("op", revision=5)})
    assert moves(board=fenced) == {ME: BoardMove.UNFENCE}
    assert moves(board=fenced, settled=False) == {}
    old = snapshot(view(RANKS[0], generation=3), READY[1], group=three(), board=fenced)
    assert intents.decide(old) == []
    behind = replace(fenced, records={"serve": Stored(record(Stage.STOP, 5), 9)})
    assert moves(board=behind) == {}
    assert moves(board=shared(fences={"n1": Fence("op")})) == {}
