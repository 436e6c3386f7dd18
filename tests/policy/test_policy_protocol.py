"""Beside a node that speaks another protocol: what serves goes on, and nothing that all share is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import DEATH, ME, RANKS, record, serve, snapshot, spec, view
from yrnode.model.board import PROTOCOL, BoardMove, Fence, Intent, Peer, Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import NotNow, UsageError
from yrnode.model.group import GroupMove, Phase, Stage
from yrnode.model.snapshot import GroupView, Snapshot
from yrnode.model.state import Move, State
from yrnode.node import operator, world
from yrnode.policy import gather, plan, protocol

CLEAN = [view(name, State.CLEANING, cleaned=True, generation=0) for name in RANKS]
AGAIN = Cause(Reason.OPERATOR, "restart serve")
WRITES = {*GroupMove, *BoardMove} - {GroupMove.LEARN, GroupMove.TELL, BoardMove.HEED}


def mixed(s: Snapshot, number: int = PROTOCOL + 1) -> Snapshot:
    nodes = {ME: Peer("i"), "n1": Peer("j", protocol=number)}
    return replace(s, board=replace(s.board, nodes=nodes))


def moves(s: Snapshot) -> set[object]:
    return {a.move for a in plan.decide(s)}


def lost(g: GroupView) -> Snapshot:
    s = snapshot(group=g)
    return replace(s, board=replace(s.board, records={}))


def said(**facts: Any) -> Snapshot:
    return replace(snapshot(), intents={"serve": Intent(3)}, **facts)


def fenced() -> Snapshot:
    s = snapshot()
    return replace(s, board=replace(s.board, fences={ME: Fence("op", revision=5)}))


@pytest.mark.parametrize(
    ("s", "write"),
    [
        (snapshot(view(RANKS[0], death=DEATH)), GroupMove.BUMP),
        (snapshot(view(RANKS[0], death=DEATH), group=serve(record(fails=2))), GroupMove.FAIL),
        (snapshot(group=serve(record(), restart=AGAIN)), GroupMove.BUMP),
        (snapshot(*CLEAN, group=serve(record(Stage.STOP))), GroupMove.GO),
        (snapshot(group=serve(record(fails=1), ready_since=-600.0)), GroupMove.FORGIVE),
        (lost(serve(record(n=3))), GroupMove.PUT_BACK),
        (said(), BoardMove.SAY),
        (fenced(), BoardMove.UNFENCE),
    ],
    ids=["bump", "fail", "restart", "go", "forgive", "put-back", "say", "unfence"],
)
def test_nothing_that_all_share_is_written(s: Snapshot, write: object) -> None:
    assert write in moves(s)
    assert not moves(mixed(s)) & WRITES
    # the same number is the same protocol, whatever the version
    assert write in moves(mixed(s, PROTOCOL))


def test_what_serves_goes_on_and_what_is_dead_is_ended() -> None:
    assert plan.decide(mixed(snapshot())) == []
    dead = mixed(snapshot(view(RANKS[0], death=DEATH)))
    assert [(a.target, a.move) for a in plan.decide(dead) if a.move is not GroupMove.TELL] == [(RANKS[0], Move.STOP)]


def test_what_others_have_written_is_learned_and_what_was_begun_is_carried_out() -> None:
    s = mixed(snapshot())
    newer = {"serve": Stored(record(Stage.STOP, 2), 8)}
    assert GroupMove.LEARN in moves(replace(s, board=replace(s.board, records=newer)))
    go = mixed(snapshot(*CLEAN, group=serve(record(members=(ME,)))))
    assert Move.START in moves(go)


def test_this_node_goes_on_telling_how_far_it_has_come() -> None:
    s = mixed(snapshot(*CLEAN, group=serve(record(Stage.STOP))))
    s = replace(s, board=replace(s.board, members={}))
    told = [a for a in plan.decide(s) if a.move is GroupMove.TELL]
    assert [a.member.phase for a in told if a.member is not None] == [Phase.CLEAN]


def test_it_is_said_who_they_are() -> None:
    assert protocol.told(snapshot()) == ""
    s = mixed(snapshot(*CLEAN, group=serve(record(Stage.STOP))))
    assert protocol.told(s).startswith(f"n1 protocol {PROTOCOL + 1}, this node {PROTOCOL}: nothing that all share")
    assert next(gather.nodes(s.groups["serve"], s)) == f"n1 (protocol {PROTOCOL + 1}, here {PROTOCOL})"
    # the key of this node's own last daemon may still be there after an upgrade
    assert protocol.strangers(replace(snapshot(), board=replace(s.board, nodes={ME: Peer("old", protocol=0)}))) == {}


@pytest.mark.parametrize(
    ("verb", "target", "taken"),
    [("restart", "serve", False), ("stop", "n0", False), ("pause", "all", False), ("restart", "worker", True)],
)
def test_an_operator_is_told_at_once(verb: str, target: str, taken: bool) -> None:
    s = mixed(snapshot())
    w = world.World(dict(s.components), dict(s.groups), me=ME, peers=(ME, "n1"), board=s.board)
    if taken:
        assert operator.asked(w, verb, target).singles == (target,)
        return
    with pytest.raises(NotNow, match=f"{verb} {target}: n1 protocol"):
        operator.asked(w, verb, target)


def test_a_former_member_is_fenced_though_the_file_no_longer_names_it() -> None:
    """go waits for it, and tells the operator to fence it."""
    w = world.make([spec(name) for name in RANKS], 0.0, ME, {"serve": world.GroupPlace((ME, "n1"))})
    w.fresh = True
    w.update_group("serve", record=record(Stage.STOP, 4, members=(ME, "n1", "n2")))
    cause = Cause(Reason.OPERATOR, "fence n2")
    operator.carry_out(w, "fence", "n2", cause)
    with pytest.raises(UsageError, match="no node 'n7' in the cluster file"):
        operator.carry_out(w, "fence", "n7", cause)
