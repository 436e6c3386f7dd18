"""Whether this daemon's own loop is served in time, and a clock that stands still while it is not.

A daemon that slept (SIGSTOP, a paused machine, no CPU) sees old news when it wakes: what it concludes from ages and
time-outs of that time is about itself.
"""

from __future__ import annotations

import asyncio
import time

TICK_S = 0.5
LATE_S = 2.0
"""A tick that comes this late was a hold-up."""
AFTERMATH_S = 1.0
"""For so long after one, others may be waking up as well."""


class Pulse:
    """Begins with the first `start`; one for each loop."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._lost = 0.0
        self._held = 0.0
        self._held_until = float("-inf")

    def start(self) -> None:
        if self._due is None:
            self._plan()

    def _plan(self) -> None:
        self._due = time.monotonic() + TICK_S
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        late = self._overdue()
        if late:
            self._lost += late
            self._held, self._held_until = late, time.monotonic()
        self._plan()

    def _overdue(self) -> float:
        late = 0.0 if self._due is None else time.monotonic() - self._due
        return late if late > LATE_S else 0.0

    def clock(self) -> float:
        """Monotonic seconds without the time that this daemon was held up."""
        return time.monotonic() - self._lost - self._overdue()

    def held_s(self, since: float) -> float:
        """For how long it was held up after `since` (monotonic seconds) or just before; 0 where it was not."""
        return self._overdue() or (self._held if self._held_until + AFTERMATH_S >= since else 0.0)
