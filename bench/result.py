"""What a measurement gives: samples in, one row of the list that `bench.json` is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.contract import LINES, Line


def percentile(samples: Sequence[float], share: float) -> float:
    """By nearest rank: the smallest sample that at least this share of all is not above. `share` is in (0, 1]."""
    if not samples:
        raise ValueError("a percentile of nothing")
    # a share such as 0.99 of 100 must not become rank 100 by the last bit of a float
    rank = math.ceil(round(share * len(samples), 9))
    return sorted(samples)[max(1, rank) - 1]


@dataclass(frozen=True)
class Peer:
    """Another program on the same work, in the row's unit; `value` None: it could not be had, and `why`."""

    name: str
    value: float | None = None
    n: int = 0
    why: str = ""

    def json(self) -> dict[str, Any]:
        return {"name": self.name, "value": _short(self.value), "n": self.n, "why": self.why}


def peer(name: str, samples: Sequence[float], share: float, why: str = "") -> Peer:
    """By the same statistic as the row; `why` there are none, or no more of them."""
    return (
        Peer(name, percentile(samples, share), len(samples), why)
        if samples
        else Peer(name, why=why or "not measured")
    )


@dataclass(frozen=True)
class Row:
    """`samples` in the unit of the line; none: it could not be measured, and `note` says why."""

    name: str
    samples: tuple[float, ...]
    peers: tuple[Peer, ...] = ()
    note: str = ""

    @property
    def line(self) -> Line:
        return LINES[self.name]

    @property
    def stat(self) -> str:
        """Which of the samples the value is: the p99 of fewer than a hundred is the worst of them."""
        n = len(self.samples)
        return f"worst of {n}" if self.line.stat == "p99" and 0 < n < 100 else self.line.stat

    @property
    def value(self) -> float | None:
        return percentile(self.samples, self.line.share) if self.samples else None

    @property
    def met(self) -> bool | None:
        """None where there is no target, or nothing was measured."""
        value, target = self.value, self.line.target
        if value is None or target is None:
            return None
        return value <= target if self.line.inclusive else value < target

    @property
    def rival(self) -> Peer | None:
        """The best of the peers that could be measured; else the first."""
        had = [p for p in self.peers if p.value is not None]
        return min(had, key=lambda p: p.value or 0.0) if had else next(iter(self.peers), None)

    def json(self) -> dict[str, Any]:
        value, rival = self.value, self.rival
        theirs = rival.value if rival else None
        return {
            "name": self.name,
            "value": _short(value),
            "unit": self.line.unit,
            "n": len(self.samples),
            "p50": _short(percentile(self.samples, 0.5)) if self.samples else None,
            "p99": _short(percentile(self.samples, 0.99)) if self.samples else None,
            "target": self.line.target,
            "met": self.met,
            "peer": rival.name if rival else None,
            "peer_value": _short(theirs),
            "ratio": _short(theirs / value) if value and theirs is not None else None,
            "stat": self.stat,
            "what": self.line.what,
            "peers": [p.json() for p in self.peers],
            "note": self.note,
        }


def _short(value: float | None) -> float | None:
    """Four digits that say something."""
    return None if value is None else float(f"{value:.4g}")
