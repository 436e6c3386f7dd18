"""All that should be done now, and when to look again."""

from __future__ import annotations

from yrnode.model.action import Action
from yrnode.model.board import BoardMove
from yrnode.model.group import GroupMove
from yrnode.model.snapshot import Snapshot
from yrnode.model.state import Move
from yrnode.policy import component, group, intents


def decide(s: Snapshot) -> list[Action]:
    """At most one action for each group and each component. Groups first: their members follow the record."""
    actions = intents.decide(s)
    if any(a.move is BoardMove.HEED for a in actions):
        # what an operator wants comes before anything that is done on our own
        return actions
    groups = [a for g in s.groups.values() if (a := group.decide(g, s)) is not None]
    actions += groups
    moved = {name for a in groups if a.move is not GroupMove.TELL for name in (a.target, *a.also)}
    for c in s.components.values():
        action = component.decide(c, s)
        # a start was decided for the record as it was read, not for the one that this round writes
        if action is not None and not (action.move is Move.START and {c.spec.group, c.spec.lives_with} & moved):
            actions.append(action)
    return actions


def next_look(s: Snapshot) -> float | None:
    """The nearest deadline in monotonic seconds, at which a round is due even if nothing happens."""
    deadlines = [c.deadline for c in s.components.values() if c.deadline is not None]
    deadlines += [
        g.learned_at + wait for g in s.groups.values() for wait in (g.record.backoff_s, group.INFORM_AFTER_S)
    ]
    return min((d for d in deadlines if d > s.now), default=None)
