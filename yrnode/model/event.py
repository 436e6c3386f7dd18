"""One thing that happened, in the words that log, events file, CLI and API share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yrnode.model.group import GroupMove
from yrnode.model.state import Move

FOLLOWING = frozenset({Move.CLEAN.value, Move.START.value, Move.WAIT.value, GroupMove.GO.value})
"""Moves that carry on what an earlier one began."""


@dataclass(frozen=True)
class Event:
    """`seq` orders events, also over a wall clock that jumps. `at` is wall time in seconds, for people."""

    seq: int
    at: float
    target: str
    what: str
    reason: str
    text: str
    evidence: str = ""
    instance: str = ""
    generation: int = 0
    culprit: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON shape of the events file and of `GET /events`: empty fields are left out."""
        return {k: v for k, v in self.__dict__.items() if v not in ("", None)}

    def line(self) -> str:
        """One line without the time, which the log's own format adds.

        What follows from an earlier move leaves the evidence to that move's line, a few lines above.
        """
        line = f"{self.target}: {self.what}: {self.text}"
        if self.evidence and self.what not in FOLLOWING:
            line += f" [{self.evidence}]"
        if self.generation:
            line += f" generation={self.generation}"
        if self.instance:
            line += f" instance={self.instance}"
        return line
