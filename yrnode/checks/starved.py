"""The witness of a missed probe: was there a core for whoever asked?

On a host without a free core a healthy worker misses its deadlines, and a restart makes the host busier still. Who
asks one that hangs just waits for it, and not for a core.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from yrnode.checks.base import Check
from yrnode.model.verdict import Result, Verdict

WAITED = 2.0
"""So many times the time itself its threads together waited for a core. Measured on two cores, with 100 and 200 busy
processes beside: 2.1 to 5.4 where the answer only came late, 1.0 to 2.5 where the worker was frozen, and 0.02 then on
a quiet host."""
EXCUSED_S = 60.0
"""After so long without an answer it is no longer the host's fault alone."""


class Witness:
    """Of one check of one instance. `beside` each of its probes, then `hear` the result."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._before: dict[str, int] = {}
        self._began = 0.0
        self._since: float | None = None

    @contextmanager
    def beside(self, timeout_s: float) -> Iterator[None]:
        """Counts from the middle of the probe's time, so that one that is answered costs nothing."""
        self._before = {}
        if self._check.asker is None:
            yield
            return
        timer = asyncio.get_running_loop().call_later(timeout_s / 2, self._begin)
        try:
            yield
        finally:
            timer.cancel()

    def _begin(self) -> None:
        if self._check.asker is not None:
            self._before, self._began = waits(self._check.asker), time.monotonic()

    def hear(self, result: Result) -> Result:
        """The result; unknown instead of a miss that was the host's fault."""
        if result.verdict is Verdict.OK:
            self._since = None
        if result.verdict is not Verdict.FAIL or not self._before or self._check.asker is None:
            return result
        now = time.monotonic()
        after = waits(self._check.asker)
        waited_s = sum(after[t] - self._before[t] for t in self._before.keys() & after.keys()) / 1e9
        if waited_s < WAITED * (now - self._began):
            return result
        self._since = now if self._since is None else self._since
        if now - self._since >= EXCUSED_S:
            return result
        took = f"{waited_s:.1f} s in {now - self._began:.1f} s"
        why = f"the asker's threads waited {took} for a core: this host has none free"
        return replace(result, verdict=Verdict.UNKNOWN, evidence=f"{result.evidence}, but {why}")


def waits(pid: int) -> dict[str, int]:
    """For how many nanoseconds each thread has waited for a core; empty where the kernel does not count it."""
    found: dict[str, int] = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as f:
                found[thread] = int(f.read().split()[1])
    except (OSError, ValueError, IndexError):
        # a process that ends, or a kernel without the figures: the others still count
        pass
    return found
