"""KV cache of one engine: a pool of fixed-size blocks, with reuse of full blocks by content."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict


def block_hashes(tokens: list[int], size: int) -> list[str]:
    """One hash per full block, each over its tokens and all before: the same in every process and on every node."""
    parent, out = b"", []
    for start in range(0, len(tokens) - size + 1, size):
        parent = hashlib.sha256(parent + array("q", tokens[start : start + size]).tobytes()).digest()
        out.append(parent.hex()[:32])
    return out


class BlockPool:
    """Counts blocks in use and remembers full ones. Nothing is stored: only who holds what."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._private = 0  # blocks without content that others could reuse
        self._held: dict[str, int] = {}  # hash -> number of holders
        self._idle: OrderedDict[str, None] = OrderedDict()  # full, held by nobody, oldest first

    @property
    def used(self) -> int:
        return self._private + len(self._held)

    @property
    def usage(self) -> float:
        """Share of blocks held by requests, 0 to 1."""
        return self.used / self.total

    def match(self, hashes: list[str]) -> int:
        """How many leading blocks are here."""
        for n, h in enumerate(hashes):
            if h not in self._held and h not in self._idle:
                return n
        return len(hashes)

    def hold(self, hashes: list[str]) -> None:
        """Take blocks that `match` found."""
        for h in hashes:
            self._idle.pop(h, None)
            self._held[h] = self._held.get(h, 0) + 1

    def grow(self, count: int) -> None:
        """Take `count` blank blocks, and forget the oldest idle content where needed."""
        self._private += count
        while self._idle and self.used + len(self._idle) > self.total:
            self._idle.popitem(last=False)

    def fill(self, hashes: list[str]) -> None:
        """Blank blocks became full ones with these hashes."""
        self._private -= len(hashes)
        self.hold(hashes)

    def release(self, hashes: list[str], blank: int) -> None:
        """Give back full and blank blocks; full ones stay reusable, a prefix outliving what follows it."""
        self._private -= blank
        for h in reversed(hashes):
            self._held[h] -= 1
            if not self._held[h]:
                del self._held[h]
                self._idle[h] = None
