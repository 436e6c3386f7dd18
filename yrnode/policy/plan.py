"""All that should be done now, and when to look again."""

from __future__ import annotations

from yrnode.model.action import Action
from yrnode.model.snapshot import Snapshot
from yrnode.policy import component, group


def decide(s: Snapshot) -> list[Action]:
    """At most one action for each group and each component. Groups first: their members follow the record."""
    actions = [group.decide(g, s) for g in s.groups.values()]
    actions += [component.decide(c, s) for c in s.components.values()]
    return [a for a in actions if a is not None]


def next_look(s: Snapshot) -> float | None:
    """The nearest deadline in monotonic seconds, at which a round is due even if nothing happens."""
    deadlines = [c.deadline for c in s.components.values() if c.deadline is not None]
    deadlines += [g.record.not_before for g in s.groups.values()]
    return min((d for d in deadlines if d > s.now), default=None)
