"""What this node tells the others so that they can say in what it differs: facts, and the time on its clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping

log = logging.getLogger("yrnode.node")

Facts = Mapping[str, str]
OFFSETS = 3
"""Keys of a node that its clock is judged by."""


def learn(look: Callable[[], Facts], say: Callable[[Facts], None]) -> None:
    """`look` in a thread, for as long as that takes, then `say` in the running loop what was found. Once."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        try:
            found = look()
        except Exception:
            log.exception("what all nodes should have alike")
            return
        # the loop may have ended meanwhile
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(say, found)

    # one of its own: a dead mount would hold up the end of a pool
    threading.Thread(target=run, name="facts", daemon=True).start()


class Offsets:
    """How far the clocks of other nodes are ahead of this one, in seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def note(self, node: str, put_at: float, come_at: float) -> None:
        """A key that says when it was put, and when it has come here, both in wall seconds."""
        self._seen[node] = [*self._seen.get(node, []), put_at - come_at][-OFFSETS:]

    def all(self) -> dict[str, float]:
        """By node. A key that comes late looks like a clock that is behind, so the best of some counts."""
        return {node: max(seen) for node, seen in self._seen.items()}
