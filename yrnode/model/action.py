"""What a decision asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from yrnode.model.board import BoardMove, Intent
from yrnode.model.cause import Cause
from yrnode.model.group import GroupMove, GroupRecord, Member
from yrnode.model.state import Move


@dataclass(frozen=True)
class Action:
    """A move of one component or group, and why.

    `delay`: seconds to wait before the next attempt. `record`: for a group's move, the record that it writes,
    or `member`: what it tells. `also`: records of other groups that are written with it, by group. `intent`: what is
    kept or put.
    """

    move: Move | GroupMove | BoardMove
    target: str
    cause: Cause
    delay: float = 0.0
    record: GroupRecord | None = None
    also: Mapping[str, GroupRecord] = field(default_factory=dict)
    member: Member | None = None
    intent: Intent | None = None
