"""When what is done again and again is due: together with the rest, so that one waking serves many.

A process that wakes for each of twenty small things a second pays most for the waking: its caches are cold by then.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

TOGETHER = 4
"""So many components have their turns at the same moment. More of them would hold the loop for longer than a death
may wait, and fewer cost a small node twice as much."""
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
    return ((HERE_S + 0.618 * (i // TOGETHER)) % 1.0 for i in itertools.count())
