"""Why a serving group's present life must end, as this node sees it.

Only what was started for the record's own life counts. The absence of a node counts for nothing by itself: it takes
the silence of its rank's port as well, and our own rank having been ready, for then all of them were.
"""

from __future__ import annotations

from dataclasses import replace

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import Phase
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import RUNNING, State
from yrnode.policy import component, trust

GONE_AFTER_S = 2.0 * trust.LEASE_S
"""Twice the lease: how long a node's key must be gone, without a break in the watch."""
LATE_S = 10.0
"""What a member may be late beyond its own start deadline before others speak for it."""
LOST = frozenset({State.STOPPING, State.STOPPED, State.BACKOFF, State.FAILED})


def of(g: GroupView, s: Snapshot) -> Cause | None:
    for name in g.members:
        member = s.components[name]
        running = member.state in RUNNING and member.generation == g.record.n
        found = component.fault(member, s) if running else _lost(member, g)
        if found is not None:
            return replace(found, component=found.component or name)
    return _late(g, s) or _gone(g, s)


def _lost(c: ComponentView, g: GroupView) -> Cause | None:
    """This node has started its members for this life, by its own record, and one of them is not there."""
    if g.started != g.record.n or c.state not in LOST:
        return None
    why = c.leaving if c.generation == g.record.n else None
    if c.state is State.STOPPING and not (why is not None and (why.fault or why.reason is Reason.RESIDUE)):
        return None
    if why is not None:
        # it may have been asked to end: stopped by an operator, and wanted again before the record could say so
        return why
    if g.ended:
        return Cause(Reason.START, "start after a shutdown")
    # a reboot, or it died while nobody watched
    return Cause(Reason.EXITED, f"no instance of generation {g.record.n} was found")


def _late(g: GroupView, s: Snapshot) -> Cause | None:
    """A node that is there has not come to ready in time, and cannot or does not say so itself."""
    limit = max((s.components[m].spec.start_timeout_s for m in g.members), default=0.0) + LATE_S
    if s.now < g.learned_at + limit:
        return None
    for node, member in s.board.phases(g.name).items():
        if member.n == g.record.n and member.phase in (Phase.CLEAN, Phase.STARTING) and node in g.record.members:
            text = f"{node} is still {member.phase.value} {limit:g} s after go"
            return Cause(Reason.START_TIMEOUT, text, member.evidence, _named(g, node))
    return None


def _gone(g: GroupView, s: Snapshot) -> Cause | None:
    if not all(s.components[m].state in (State.READY, State.UNHEALTHY) for m in g.members):
        return None
    for node in g.nodes:
        away = s.absent.get(node)
        if away is None or s.now - away.since < GONE_AFTER_S or g.name not in away.dead:
            continue
        # one that has come into the file since has no part in this life
        if node not in g.record.members:
            continue
        text = f"{node} is gone: its key for {s.now - away.since:.0f} s, and nothing listens on its ranks' ports"
        return Cause(Reason.EXITED, text, "", _named(g, node))
    return None


def _named(g: GroupView, node: str) -> str:
    return f"{node}/{g.name}"
