"""Whether the worker goes on writing its liveness file, which it does every 0.1 s.

Only that the file changes is evidence. What it says is not: it says "success" long after the worker's end. It is
written in place, so a reader may find it empty for a moment; one that stays empty has no room on its disk.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown

READS = 4
BETWEEN_READS_S = 0.02


class LivenessCheck(Stateless):
    """params: `path`. The file is stale when it has not changed for the check's timeout.

    facts: `stale_s`, where that cannot be blamed on the disk.
    """

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._path = Path(spec.params.get("path", ""))
        self._mark: tuple[int, int] | None = None
        self._changed = self._filled = self.clock()

    async def probe(self, target: Target) -> Result:
        try:
            found = self._path.stat()
            mark = found.st_ino, found.st_mtime_ns
        except FileNotFoundError:
            mark = 0, 0
        except OSError as e:
            return unknown(f"{self._path}: {e.strerror}")
        now = self.clock()
        if mark != self._mark:
            self._mark, self._changed = mark, now
        limit_s, age_s = self.spec.timeout_s, now - self._changed
        if age_s >= limit_s:
            what = f"{self._path} {'has not changed' if mark[0] else 'is missing'} for {age_s:.1f} s"
            why = unwritable(self._path.parent)
            return fail(f"{what}: {why}") if why else fail(what, stale_s=age_s)
        if await self._filled_now():
            self._filled = now
        empty_s = now - self._filled
        if mark[0] and empty_s >= limit_s:
            why = unwritable(self._path.parent) or "the worker writes nothing into it"
            return fail(f"{self._path} is empty for {empty_s:.1f} s: {why}")
        return ok(f"{self._path.name} is being written")

    async def _filled_now(self) -> bool:
        for _ in range(READS):
            try:
                if self._path.read_bytes().strip():
                    return True
            except OSError:
                return False
            await asyncio.sleep(BETWEEN_READS_S)
        return False


def unwritable(directory: Path) -> str:
    """Why nobody can write there, or an empty string."""
    try:
        disk = os.statvfs(directory)
    except OSError as e:
        return f"{directory}: {e.strerror}"
    if disk.f_flag & os.ST_RDONLY:
        return f"{directory} is on a read-only file system"
    if not disk.f_bavail:
        return f"no space left on the disk of {directory}"
    return ""
