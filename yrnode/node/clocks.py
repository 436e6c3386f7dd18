"""What happened to time between two rounds: the wall clock was set, this machine was suspended, this daemon slept.

No decision turns on the wall clock. One that slept sees the past when it wakes: it looks anew before it judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from yrnode.model.cause import Cause, Reason
from yrnode.model.state import State
from yrnode.model.verdict import Result, Tally, unknown
from yrnode.node.world import World
from yrnode.telemetry.events import EventLog

JUMP_S = 1.0
"""A clock that is only slewed differs by less than a millisecond from one round to the next."""
SLEPT_S = 5.0
"""Between two rounds, which are at most a second apart."""
LOOK_ANEW_S = 3.0
"""After a sleep nobody is judged for so long: the store's word and the first probes take less."""


@dataclass(frozen=True)
class Now:
    """Seconds of the monotonic clock, of the clock that goes on in suspend, and of the wall clock."""

    monotonic: float
    boot: float
    wall: float


def read() -> Now:
    return Now(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


class Clocks:
    """`look` once a round, before anything is decided."""

    def __init__(self, world: World, events: EventLog, now: Callable[[], Now] = read) -> None:
        self._world = world
        self._events = events
        self._now = now
        self._before: Now | None = None
        self._anew_at = float("-inf")

    def look(self) -> bool:
        """Whether verdicts may be passed. Tells what happened to time since the last look."""
        now = self._now()
        before, self._before = self._before or now, now
        moved = (now.wall - before.wall) - (now.boot - before.boot)
        if abs(moved) >= JUMP_S:
            sign = "+" if moved > 0 else "\N{MINUS SIGN}"
            self._say(f"wall clock moved by {sign}{abs(moved):.0f} s", "nothing here is timed by it")
        awake = now.monotonic - before.monotonic
        suspended = (now.boot - before.boot) - awake
        if suspended >= JUMP_S:
            why = f"this machine was suspended for {suspended:.0f} s"
        elif awake >= SLEPT_S:
            why = f"this daemon slept {awake:.0f} s"
        else:
            return now.monotonic >= self._anew_at
        self._say(f"{why}, its verdicts of that time are void", "")
        void(self._world, why, awake)
        self._anew_at = now.monotonic + LOOK_ANEW_S
        return False

    def _say(self, text: str, evidence: str) -> None:
        self._events.emit("yrnode", "clock", Cause(Reason.CLOCK, text, evidence))


def void(world: World, why: str, slept_s: float) -> None:
    """Take back what the checks said, and give `slept_s` (monotonic seconds) back to who is still starting."""
    result = unknown(f"{why}: not asked since")
    for view in tuple(world.components.values()):
        checks = {name: _void(tally, result) for name, tally in view.checks.items()}
        facts: dict[str, object] = {"checks": checks}
        if view.state is State.STARTING and view.deadline is not None:
            facts["deadline"] = view.deadline + slept_s
        world.update(view.name, **facts)


def _void(tally: Tally, result: Result) -> Tally:
    return replace(tally, result=result, failures=0, successes=0, failing=False)
