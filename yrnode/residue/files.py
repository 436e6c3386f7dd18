"""Files that an ended instance leaves: in its own folders, and in /dev/shm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from yrnode.process import table
from yrnode.process.instance import mapped_shm


def remove_stale(paths: Iterable[Path]) -> int:
    """Remove files and folders that only the ended instance used; how many were there. OSError when one cannot be
    removed."""
    removed = 0
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            try:
                path.unlink()
            except FileNotFoundError:
                continue
        removed += 1
    return removed


def remove_shm(names: Iterable[str], began: int = 0) -> list[str]:
    """Remove these files of /dev/shm, ours by uid, unless a living process maps them. Returns what was removed.

    Where a process does not let us see its maps, nothing is proven unused, and nothing is removed; unless it is
    older than the instance that made the files (`began`, in clock ticks since boot), as a container's first process.
    """
    left = {n for n in names if _ours(n)}
    if not left:
        return []
    for proc in table.scan():
        try:
            left -= mapped_shm(proc.pid)
        except PermissionError:
            if proc.start_ticks >= began:
                return []
    for name in left:
        Path(name).unlink(missing_ok=True)
    return sorted(left)


def _ours(name: str) -> bool:
    try:
        return os.lstat(name).st_uid == os.geteuid()
    except OSError:
        return False
