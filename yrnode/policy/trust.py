"""How far the shared keys can be trusted at a moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Known:
    """The store that a node knows, kept on disk. `settling`: it had lost something, and not every node has had the
    time yet to put back what it knows; `until`: monotonic seconds, 0 where a daemon's restart has lost them.
    """

    store: str = ""
    settling: bool = False
    until: float = 0.0

    @property
    def kept(self) -> tuple[str, bool]:
        """What outlives the daemon."""
        return self.store, self.settling

    def settled(self, now: float) -> bool:
        return not self.settling or 0.0 < self.until <= now

    def read(self, groups: Iterable[GroupView], board: Board, now: float) -> Known:
        """After the board was read. A daemon that starts in the middle waits for all of it again."""
        if not board.store_id:
            return self
        if (self.settling and not self.until) or lost(groups, board, self.store):
            return Known(board.store_id, True, now + SETTLE_S)
        return replace(self, store=board.store_id)

    def later(self, now: float) -> Known:
        return replace(self, settling=False) if self.settling and self.settled(now) else self


def lost(groups: Iterable[GroupView], board: Board, known_store: str) -> bool:
    """Whether the store has lost something that this node knows: it is another one, or has an older record."""
    if known_store and board.store_id != known_store:
        return True
    kept = [g for g in groups if g.record.n > 1]
    return any(g.name not in board.records or board.records[g.name].record.order < g.record.order for g in kept)
