"""What the cache group needs: all datasystem workers, which share one ring in the store.

A worker restarts alone, by its own policy. The group restarts as a whole only when the ring is lost: the store's data
is another than at the last go, or this worker is no longer in the ring. A worker that goes on then never leaves
`recover`, and the next one to start builds a second ring beside it, silently.

Invariants:
- what the datasystem keeps in the store is deleted in the very transaction that says go, which sees no key of a
  worker that is not proven gone;
- a worker starts alone only on a fresh read of stage go in the store that the go was for, read since the worker was
  stopped and since the store was last away;
- an unavailable store, one that refuses writes, or one whose identity is not known yet, is no evidence.
"""

from __future__ import annotations

from collections.abc import Iterable

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import State

RING = "ring"
LOST = "the store has lost its data, and with it the workers' ring"


def evidence(g: GroupView, s: Snapshot) -> Cause | None:
    """Why the group must restart as a whole, if it must."""
    if not s.store_available or not s.board.store_id or s.store_refusal is not None:
        return None
    if g.record.store and g.record.store != s.board.store_id:
        seen = f"store {s.board.store_id} instead of {g.record.store}"
        return Cause(Reason.STORE, LOST, seen)
    for name in g.members:
        member = s.components[name]
        tally = member.checks.get(RING)
        if member.state in (State.READY, State.UNHEALTHY) and tally is not None and tally.failing:
            return Cause(Reason.STORE, f"the ring has lost {name}", tally.result.evidence, name)
    return None


def may_start(c: ComponentView, g: GroupView, s: Snapshot) -> bool:
    """Whether a worker may start: on go, as read since it was stopped, in the store that the go was for."""
    proven = s.fresh and not waits_for_proof([c], s.proven_at, s.store_since)
    return g.record.stage is Stage.GO and proven and g.record.store in ("", s.board.store_id)


def waits_for_proof(components: Iterable[ComponentView], proven_at: float, store_since: float) -> bool:
    """Whether a worker is to start on what was read before it was stopped, or before the store came back: in between
    the store may have been replaced."""
    cleaning = (c for c in components if c.spec.lives_with and c.state is State.CLEANING)
    return any(proven_at < max(c.since, store_since) for c in cleaning)
