"""How far the shared keys can be trusted at a moment."""

from __future__ import annotations

from collections.abc import Iterable

from yrnode.model.board import Board
from yrnode.model.snapshot import GroupView

LEASE_S = 5
"""How long a node's keys outlive its last word."""
SETTLE_S = 2.0 * LEASE_S
"""After a store was replaced or restored: how long every node may still put back what it knows."""
PROVEN_S = 4.0
"""A watch that has not been proven complete for so long is not trusted."""


def fresh(board: Board, now: float, proven_at: float, lease_alive: bool) -> bool:
    """Whether the board may be acted on: the watch was proven complete just now, and our own lease lives."""
    return bool(board.store_id) and now - proven_at < PROVEN_S and lease_alive


def lost(groups: Iterable[GroupView], board: Board, known_store: str) -> bool:
    """Whether the store has lost something that this node knows: it is another one, or has an older record."""
    if known_store and board.store_id != known_store:
        return True
    kept = [g for g in groups if g.record.n > 1]
    return any(g.name not in board.records or board.records[g.name].record.order < g.record.order for g in kept)
