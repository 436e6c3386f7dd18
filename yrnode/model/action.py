"""What a decision asks for."""

from __future__ import annotations

from dataclasses import dataclass

from yrnode.model.cause import Cause
from yrnode.model.group import GroupMove, GroupRecord
from yrnode.model.state import Move


@dataclass(frozen=True)
class Action:
    """A move of one component or group, and why.

    `delay`: seconds to wait before the next attempt. `record`: for a group's move, the record that it writes.
    """

    move: Move | GroupMove
    target: str
    cause: Cause
    delay: float = 0.0
    record: GroupRecord | None = None
