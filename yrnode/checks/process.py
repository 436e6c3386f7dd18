"""Whether the main process runs: neither stopped, nor a zombie, nor waiting for the kernel without end."""

from __future__ import annotations

from collections.abc import Callable

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.process import table

STUCK_S = 3.0
"""A process that waits so long in state D without any CPU time is stuck; disks make everybody wait for moments."""


class Frozen:
    """Tells for how long the kernel has kept processes from running: in state T, or in D without CPU time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[int, tuple[tuple[object, ...], float]] = {}

    def seconds(self, proc: table.Proc) -> float:
        """0 for a process that runs. Not for one that a debugger holds: whoever does that knows it."""
        now = self._clock()
        if proc.state not in "TD":
            self._since.pop(proc.pid, None)
            return 0.0
        mark = (proc.start_ticks, proc.state, proc.cpu_ticks)
        if self._since.get(proc.pid, (None, 0.0))[0] != mark:
            self._since[proc.pid] = (mark, now)
        return now - self._since[proc.pid][1]


class ProcessCheck(Stateless):
    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._frozen = Frozen(self.clock)

    async def probe(self, target: Target) -> Result:
        if target.pid is None:
            return unknown("its main process is not known yet")
        proc = table.read(target.pid)
        if proc is None:
            return fail(f"pid {target.pid} is gone")
        held_s = self._frozen.seconds(proc)
        if proc.state == "D" and held_s >= STUCK_S:
            return fail(f"{proc} for {held_s:.0f} s, without CPU time")
        if proc.state == "t":
            return unknown(f"{proc}: a debugger holds it")
        return fail(str(proc)) if proc.state in "TZX" else ok(str(proc))
