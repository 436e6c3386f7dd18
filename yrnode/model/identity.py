"""Who a daemon is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """`started_at` is wall time in seconds."""

    node: str
    cluster: str
    version: str
    started_at: float
