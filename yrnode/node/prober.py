"""Runs the checks of one instance, each at its own pace, until told to end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from yrnode.checks import kinds
from yrnode.checks.base import Check, Target, Tools
from yrnode.checks.starved import Witness
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.verdict import Result, Tally, fail, unknown
from yrnode.node.pace import Steps, pause_s

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

LATE_S = 0.5
"""A timer that fires this late was not served: the probe's time-out then says nothing about what it probed."""

Report = Callable[[str, str, str, Result], None]


class Prober:
    """`report` gets (component, instance, check, result). `tallies` and `pid` tell the instance's present state.

    `steps`: those of all checks of this daemon. `phase_s`: when these are due, see `pace`.
    """

    def __init__(
        self,
        spec: ComponentSpec,
        instance: str,
        tools: Tools,
        report: Report,
        tallies: Callable[[], Mapping[str, Tally]],
        pid: Callable[[], int | None],
        steps: Steps,
        phase_s: float,
    ) -> None:
        self._spec = spec
        self._instance = instance
        self._tools = tools
        self._report = report
        self._tallies = tallies
        self._pid = pid
        self._steps, self._phase_s = steps, phase_s
        self._closed = False
        self._tasks = [asyncio.create_task(self._run(c), name=f"{spec.name} {c.name}") for c in spec.checks]

    async def _run(self, spec: CheckSpec) -> None:
        check = kinds.make(spec, self._tools)
        witness = Witness(check)
        try:
            while not self._closed:
                passed = self._tallies()[spec.name].passed
                if self._may_run(spec):
                    with witness.beside(spec.timeout_s):
                        result = await self._probe(check, spec)
                    result = witness.hear(result)
                    self._report(self._spec.name, self._instance, spec.name, result)
                    passed = self._tallies()[spec.name].passed
                if passed and not spec.watch:
                    return
                await asyncio.sleep(self._pause_s(spec, passed))
                await self._steps.mine()
        finally:
            with contextlib.suppress(Exception):
                await check.close()

    def _pause_s(self, spec: CheckSpec, passed: bool) -> float:
        # a start is waited for, so it does not wait for its turn
        early = spec.gate and not passed
        return spec.gate_period_s if early else pause_s(time.monotonic(), spec.period_s, self._phase_s)

    def _may_run(self, spec: CheckSpec) -> bool:
        if self._pid() is None:
            # dscli has not brought the worker up yet
            return False
        tallies = self._tallies()
        return all(tallies[name].passed for name in spec.after)

    async def _probe(self, check: Check, spec: CheckSpec) -> Result:
        target = Target(self._spec.name, self._instance, self._pid())
        began = time.monotonic()
        try:
            async with timeout(spec.timeout_s):
                result = await check.probe(target)
        except asyncio.TimeoutError:
            late = time.monotonic() - began - spec.timeout_s
            if late > LATE_S:
                result = unknown(f"this daemon itself was held up for {late:.1f} s")
            elif spec.local:
                result = unknown(f"the look at this host's processes or files took more than {spec.timeout_s:g} s")
            else:
                result = fail(f"no answer within {spec.timeout_s:g} s")
        except Exception as e:
            # a fault of the probe says nothing about what it probes
            result = unknown(f"the probe itself failed: {e!r}")
        return replace(result, took_s=time.monotonic() - began)

    async def close(self) -> None:
        """End all probes."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
