"""The witness of a missed probe: did the process have to wait for a core?

On a host without a free core a healthy worker misses its deadlines, and a restart makes the host busier still. Who
hangs waits for no core, and is judged as ever.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace

from yrnode.model.verdict import Result, Verdict

WINDOW_S = 0.5
TURN_S = 0.025
"""A probe of the KV path takes some hundred turns on a core, one after another a few dozen: with a wait of less than
this before each it ends long before its deadline."""
EXCUSED_S = 60.0
"""After so long without an answer it is no longer the host's fault alone."""


class Witness:
    """Of one check of one instance. `hear` each of its results, in order."""

    def __init__(self) -> None:
        self._since: float | None = None

    async def hear(self, result: Result, pid: int | None, timeout_s: float) -> Result:
        """The result, or unknown where a miss that took at least half of its time was the host's fault."""
        if result.verdict is Verdict.OK:
            self._since = None
        if result.verdict is not Verdict.FAIL or pid is None or result.took_s < timeout_s / 2:
            return result
        began = time.monotonic()
        wait_s = await turn_wait(pid)
        if wait_s is None or wait_s < TURN_S:
            return result
        self._since = began if self._since is None else self._since
        if began - self._since >= EXCUSED_S:
            return result
        why = f"it waits {wait_s * 1000:.0f} ms for each turn on a core: this host has none free"
        return replace(result, verdict=Verdict.UNKNOWN, evidence=f"{result.evidence}, but {why}")


async def turn_wait(pid: int) -> float | None:
    """For how many seconds its threads wait before each turn on a core, on average over half a second.

    None where no thread asked for a core, or the kernel does not count it (schedstat of proc(5)).
    """
    before = _scheduled(pid)
    await asyncio.sleep(WINDOW_S)
    after = _scheduled(pid)
    shared = before.keys() & after.keys()
    turns = sum(after[t][1] - before[t][1] for t in shared)
    return sum(after[t][0] - before[t][0] for t in shared) / 1e9 / turns if turns > 0 else None


def _scheduled(pid: int) -> dict[str, tuple[int, int]]:
    """Each thread's nanoseconds of waiting for a core, and how often it got one."""
    found: dict[str, tuple[int, int]] = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as f:
                _, waited, turns = f.read().split()
            found[thread] = (int(waited), int(turns))
        except (OSError, ValueError):
            continue
    return found
