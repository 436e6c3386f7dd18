"""When what is done again and again is due: together with what belongs to it, so that one waking serves many.

A process that wakes for each of twenty small things a second pays most for the waking: its caches are cold by then.
All at once would be worse: the servers that are asked answer at once too, and who asks this daemon waits for all.
So the checks of one component are due together, each component's apart from the others', and each check has a step of
the loop for itself: a death or a request that comes is not behind all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import deque
from collections.abc import Iterator

HERE_S = random.random()  # noqa: S311  the daemons of one host keep apart, it guards no secret


def pause_s(now: float, period_s: float, phase_s: float = HERE_S) -> float:
    """Seconds from `now` (monotonic) until the next turn, half a period away at least and one and a half at most.

    Turns are the multiples of the period after `phase_s`. What ends within half a period of its turn is back a whole
    period after it; one that took longer never has less than half of one to recover.
    """
    turn = math.ceil((now - phase_s) / period_s + 0.5)
    return turn * period_s + phase_s - now


def phases() -> Iterator[float]:
    """For one component after another, without end: when its turns are, in seconds from 0 to below 1."""
    # golden ratio: however many there are, they lie apart
    return ((HERE_S + 0.618 * i) % 1.0 for i in itertools.count())


class Steps:
    """Those that are due at the same moment, one in each step of the running loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def mine(self) -> None:
        """Wait until all that were due before have had their step."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._next, loop)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            # the head stays while it has its step: who comes meanwhile is behind it
            turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
                continue
            turn.set_result(None)
            loop.call_soon(self._next, loop)
            return
