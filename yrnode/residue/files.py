"""Files that an ended instance leaves: in its own folders, and in /dev/shm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from yrnode.process import table
from yrnode.process.instance import mapped_shm


def remove_stale(paths: Iterable[Path]) -> None:
    """Remove files and folders that only the ended instance used. OSError when one cannot be removed."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_shm(names: Iterable[str]) -> list[str]:
    """Remove these files of /dev/shm unless a living process maps them. Returns what was removed."""
    left = {n for n in names if os.path.exists(n)}
    if not left:
        return []
    for proc in table.scan():
        left -= mapped_shm(proc.pid)
    for name in left:
        Path(name).unlink(missing_ok=True)
    return sorted(left)
