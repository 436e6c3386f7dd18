"""Whether a rank's engine processes are all there.

`vllm serve` goes on answering for seconds after its engine core died, and then ends with exit code 0. Which processes
belong to it is learned once the rank has generated a token: their number depends on the executor and on its version.
"""

from __future__ import annotations

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.process import table

TITLE = "VLLM::"


class ProcessSetCheck(Stateless):
    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._set: list[table.Proc] = []

    async def probe(self, target: Target) -> Result:
        if not self._set:
            self._set = [p for p in table.scan() if p.sid == target.pid and p.comm.startswith(TITLE)]
            if not self._set:
                return unknown(f"no process of the rank is titled {TITLE}…")
        now = [(known, table.read(known.pid)) for known in self._set]
        gone = [known for known, p in now if p is None or p.start_ticks != known.start_ticks or p.state in "ZX"]
        if gone:
            return fail(f"gone: {_people(gone)}")
        stopped = [p for _, p in now if p is not None and p.state in "tT"]
        if stopped:
            return unknown(f"stopped: {_people(stopped)}")
        return ok(f"all there: {_people(self._set)}")


def _people(procs: list[table.Proc]) -> str:
    return ", ".join(f"{p.comm} (pid {p.pid})" for p in procs)
