"""Facts that the decisions rely on, as the node's world writes them down when a move is made."""

from __future__ import annotations

from tests.policy.build import spec
from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import Move, State
from yrnode.node import world
from yrnode.policy.frozen import frozen

ASKED = Cause(Reason.OPERATOR, "restart etcd by root")
DIED = Cause(Reason.EXITED, "exited: exit code 1", "", "etcd")


def moved(*moves: Move, state: State = State.STOPPED, **facts: object) -> ComponentView:
    """etcd after these moves from a state, as the world has it."""
    w = world.make([spec("etcd")], 0.0)
    w.update("etcd", state=state, **facts)
    for at, move in enumerate(moves, 1):
        w.apply(Action(move, "etcd", DIED, delay=5.0), float(at))
    return w.components["etcd"]


def test_a_start_begins_a_new_life() -> None:
    c = moved(Move.CLEAN, Move.START, generation=3, death=DIED, ready_at=7.0, gone=True, restart=ASKED)
    assert (c.state, c.generation, c.restarts, c.deadline) == (State.STARTING, 4, 1, 62.0)
    assert (c.death, c.ready_at, c.gone, c.restart) == (None, None, False, None)
    assert not c.proven


def test_a_fault_is_remembered_with_the_life_that_it_ended() -> None:
    c = moved(Move.STOP, state=State.READY, ready_at=0.25)
    assert [(f.at, f.ready_for, f.cause) for f in c.history] == [(1.0, 0.75, DIED)]
    assert (c.leaving, c.restart) == (DIED, None)
    assert moved(Move.STOP, Move.WAIT, state=State.READY).deadline == 7.0


def test_a_stop_is_not_done_because_an_earlier_one_was() -> None:
    assert not moved(Move.CLEAN, Move.STOP, gone=True).gone


def test_a_restart_that_is_carried_out_is_asked_for_no_more() -> None:
    assert moved(Move.CLEAN, Move.GIVE_UP, state=State.FAILED, restart=ASKED).restart is None


def test_one_that_waits_has_no_process() -> None:
    c = moved(Move.STOP, Move.WAIT, state=State.READY, pid=7, instance="i1")
    assert (c.pid, c.instance) == (None, "")


def test_a_daemon_that_has_just_started_has_not_missed_the_store_since_the_host_booted() -> None:
    s = world.make([spec("etcd")], 60_000.0).snapshot(60_001.0)
    assert not s.store_available
    assert s.store_since == 60_000.0
    assert (found := frozen(s)) is not None
    assert found.since == 60_000.0
