"""Whether the main process runs: neither stopped, nor a zombie."""

from __future__ import annotations

from yrnode.checks.base import Stateless, Target
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.process import table


class ProcessCheck(Stateless):
    async def probe(self, target: Target) -> Result:
        if target.pid is None:
            return unknown("its main process is not known yet")
        proc = table.read(target.pid)
        if proc is None:
            return fail(f"pid {target.pid} is gone")
        return fail(str(proc)) if proc.state in "TtZX" else ok(str(proc))
