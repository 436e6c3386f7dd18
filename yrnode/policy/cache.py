"""What the cache group needs next: all datasystem workers, which share one ring in the store.

A worker restarts alone, by its own policy. The group restarts as a whole only when the ring is lost: the store's data
is another than at the last go, or this worker is no longer in the ring. A worker that goes on then never leaves
`recover`, and the next one to start builds a second ring beside it, silently.

Invariants:
- what the datasystem keeps in the store is deleted only while every worker is proven gone, in one transaction that
  sees no other worker's key (`clear`), and before any worker may start (`go`);
- an unavailable store, one that refuses writes, or one whose identity is not known yet, is no evidence.
"""

from __future__ import annotations

from dataclasses import replace

from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import State
from yrnode.policy import component

RING = "ring"


def evidence(g: GroupView, s: Snapshot) -> Cause | None:
    """Why the group must restart as a whole, if it must."""
    if not s.store_available or not s.store_id or s.store_refusal is not None:
        return None
    if g.record.store and g.record.store != s.store_id:
        seen = f"store {s.store_id} instead of {g.record.store}"
        return Cause(Reason.STORE, "the store has lost its data, and with it the workers' ring", seen)
    for name in g.members:
        member = s.components[name]
        tally = member.checks.get(RING)
        if member.state in (State.READY, State.UNHEALTHY) and tally is not None and tally.failing:
            return Cause(Reason.STORE, f"the ring has lost {name}", tally.result.evidence, name)
    return None


def go(g: GroupView, members: list[ComponentView], s: Snapshot) -> Action | None:
    """Clear the store once every wanted worker is clean, then let them start."""
    waiting = [m for m in members if component.wanted(m, s)]
    if not waiting or s.now < g.record.not_before or not s.store_available or not s.store_id:
        return None
    clean = all(m.state is State.CLEANING and m.cleaned and not component.missing(m, s) for m in waiting)
    if not clean or any(m.state is not State.STOPPED for m in members if m not in waiting):
        return None
    if g.cleared < g.record.n:
        return Action(GroupMove.CLEAR, g.name, g.record.cause)
    record = replace(g.record, stage=Stage.GO, store=s.store_id)
    return Action(GroupMove.GO, g.name, g.record.cause, record=record)
