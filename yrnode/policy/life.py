"""Which life of its group a member was started for, and whether the record asks it to end."""

from __future__ import annotations

from yrnode.model.group import GroupKind, Stage
from yrnode.model.snapshot import ComponentView, GroupView


def life(c: ComponentView, g: GroupView) -> int:
    """The group's life that a member was started for."""
    return c.life if g.kind is GroupKind.CACHE else c.generation


def over(c: ComponentView, g: GroupView) -> bool:
    """Whether the record asks a running member to end. Never one of a later life than the record's."""
    at = life(c, g)
    return at < g.record.n or (at == g.record.n and g.record.stage is not Stage.GO)
