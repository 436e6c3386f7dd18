"""Whether a rank's engine processes get to run: none stopped, none stuck in the kernel, and their CPU time moves."""

from __future__ import annotations

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.checks.process import Frozen
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.process import table

STOPPED_PERIODS = 3
STUCK_PERIODS = 10


class EngineCheck(Stateless):
    """A stop of three periods fails, state D without CPU time for ten.

    params: `alone`, whether all ranks of the group are on this node.
    facts: `no_cpu`, 1 once all engine processes together have used no CPU time for ten periods. That is no failure:
    an idle engine uses none, and one that waits for another rank neither. It is left out where a rank on another node
    may be the one that works.
    """

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._frozen = Frozen(self.clock)
        self._cpu = -1
        self._cpu_moved = 0.0

    async def probe(self, target: Target) -> Result:
        ledger = self.ledger(target)
        known = {(p.pid, p.start_ticks) for p in ledger.engines}
        engines = [p for p in (table.read(pid) for pid, _ in known) if p and (p.pid, p.start_ticks) in known]
        if not engines:
            return unknown("its engine processes are not known")
        ledger.stopped = any(p.state == "T" for p in engines)
        held = [(p, s) for p in engines if (s := self._frozen.seconds(p)) and s >= self._limit(p.state)]
        if held:
            people = ", ".join(f"{p.comm} (pid {p.pid}, state {p.state}) for {s:.0f} s" for p, s in held)
            return fail(f"frozen: {people}")
        still_s = self._still_s(sum(p.cpu_ticks for p in engines))
        if still_s < STUCK_PERIODS * self.spec.period_s:
            return ok("its engine processes run")
        states = ", ".join(f"{p.comm} (pid {p.pid}, state {p.state})" for p in engines)
        # not the seconds: a fact that changes is news, and an idle engine has none
        facts = {"no_cpu": 1} if self.param("alone") else {}
        return ok(f"no CPU time for {still_s:.0f} s: {states}", **facts)

    def _limit(self, state: str) -> float:
        """Seconds."""
        return (STOPPED_PERIODS if state == "T" else STUCK_PERIODS) * self.spec.period_s

    def _still_s(self, cpu_ticks: int) -> float:
        now = self.clock()
        if cpu_ticks != self._cpu:
            self._cpu, self._cpu_moved = cpu_ticks, now
        return now - self._cpu_moved
