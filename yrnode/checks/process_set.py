"""Whether a rank's engine processes are all there.

`vllm serve` goes on answering for seconds after its engine core died, and then ends with exit code 0. Which processes
belong to it is learned once the rank has generated a token, since their number depends on the executor and on its
version. Engines are the leader's own children and count at once; what else has the title counts when it has been seen
for a while, because a short-lived child of an engine carries its parent's title too.
"""

from __future__ import annotations

import asyncio
import time

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.process import table

TITLE = "VLLM::"
LEARN_S = 10.0


class ProcessSetCheck(Stateless):
    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._engines: list[table.Proc] = []
        self._others: list[table.Proc] = []
        self._learnt_at: float | None = None

    async def probe(self, target: Target) -> Result:
        if self._learnt_at is None or time.monotonic() < self._learnt_at:
            await self._learn(target)
        watched = self._engines + (self._others if self._settled() else [])
        if not watched:
            return unknown(f"no process of the rank is titled {TITLE}…")
        now = [(known, table.read(known.pid)) for known in watched]
        gone = [known for known, p in now if p is None or p.start_ticks != known.start_ticks or p.state in "ZX"]
        if gone:
            return fail(f"gone: {_people(gone)}")
        stopped = [p for _, p in now if p is not None and p.state in "tT"]
        if stopped:
            return unknown(f"stopped: {_people(stopped)}")
        return ok(f"all there: {_people(watched)}")

    def _settled(self) -> bool:
        return self._learnt_at is not None and time.monotonic() >= self._learnt_at

    async def _learn(self, target: Target) -> None:
        found = await asyncio.to_thread(
            lambda: [
                p for p in table.scan() if p.sid == target.pid and p.comm.startswith(TITLE) and p.state not in "ZX"
            ]
        )
        first = self._learnt_at is None
        if first:
            self._learnt_at = time.monotonic() + LEARN_S
            self._engines = [p for p in found if p.ppid == target.pid]
            self._others = [p for p in found if p.ppid != target.pid]
        else:
            pids = {(p.pid, p.start_ticks) for p in found}
            self._others = [p for p in self._others if (p.pid, p.start_ticks) in pids]
        self.ledger(target).engines = self._engines + self._others


def _people(procs: list[table.Proc]) -> str:
    return ", ".join(f"{p.comm} (pid {p.pid})" for p in procs)
