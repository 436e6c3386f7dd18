"""Whether this node does what it is for."""

from __future__ import annotations

from yrnode.model.group import GroupKind
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import State
from yrnode.policy import component


def unready(s: Snapshot) -> list[ComponentView]:
    """Wanted components that are not ready, or whose process has just died."""
    return [
        c
        for c in s.components.values()
        if component.wanted(c, s) and (c.state is not State.READY or c.death is not None)
    ]


def serves(s: Snapshot) -> bool:
    """Whether operators let this node serve: some group of it, or, without groups, some component is wanted."""
    serving = [g for g in s.groups.values() if g.kind is GroupKind.SERVING]
    wanted = [g.wanted for g in serving] or [component.wanted(c, s) for c in s.components.values()]
    return any(wanted)


def ready(s: Snapshot) -> bool:
    return not s.closing and serves(s) and not unready(s)
