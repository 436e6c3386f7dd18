"""How long starts take on this node, and what those under way say of themselves: for people, never acted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Starts:
    """Usual seconds from start to ready by component, and from go to ready everywhere by group; those that are not
    known are left out. `doing`: by component, what its own output says that it is at."""

    components: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, float] = field(default_factory=dict)
    doing: Mapping[str, str] = field(default_factory=dict)
