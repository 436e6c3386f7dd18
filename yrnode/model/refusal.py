"""That the store answers and takes no writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """`since`: monotonic seconds. `text`: why, in one line. `cure`: what an operator may do, a command a line."""

    since: float
    text: str
    cure: tuple[str, ...] = ()
