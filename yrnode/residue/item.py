"""One thing that was left over, or looks so: whose it is, and whether it may go."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Standing(str, Enum):
    REMOVABLE = "removable"  # proven ours, and of nothing that lives
    IN_USE = "in use"
    NOT_OURS = "not ours"
    UNKNOWN = "unknown"  # not proven: left alone


@dataclass(frozen=True)
class Item:
    """`what` and `owner` are for people. `age_s` in seconds, `size` in bytes, None where that says nothing.

    `paths`: the files and folders; `mark`: the instance whose processes it is. `began`: when the
    instance that left it began, in ticks since boot. `in_the_way`: of what is not ours, it
    would make a start fail.
    """

    kind: str
    what: str
    owner: str
    standing: Standing
    reason: str
    age_s: float | None = None
    size: int | None = None
    paths: tuple[str, ...] = ()
    mark: str = ""
    began: int = 0
    in_the_way: bool = False

    @property
    def stays(self) -> bool:
        """Whether something is still to be done about it, by us or by hand."""
        return self.standing in (Standing.REMOVABLE, Standing.UNKNOWN) or self.in_the_way

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "what": self.what,
            "owner": self.owner,
            "age_s": None if self.age_s is None else round(self.age_s, 1),
            "size": self.size,
            "verdict": self.standing.value,
            "reason": self.reason,
            "paths": list(self.paths),
        }
