"""Shared memory of dead instances that could not be removed with them: remembered until nobody maps it any more."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from yrnode.process import atomic, table
from yrnode.residue.files import remove_shm

LEFT = "left-shm.json"
"""The file's name in run_dir."""
_ONE_AT_A_TIME = threading.Lock()


def left(run_dir: Path) -> dict[str, int]:
    """Files in /dev/shm of dead instances, with the ticks since boot at which their instance began."""
    try:
        data = atomic.read(run_dir / LEFT) or {}
    except atomic.Unreadable:
        # what it said cannot be proven any more
        return {}
    names = data.get("names")
    if data.get("boot") != table.boot_id() or not isinstance(names, dict):
        return {}
    return {name: began for name, began in names.items() if isinstance(began, int)}


def remove(run_dir: Path, names: Iterable[str] = (), began: int = 0) -> list[str]:
    """Remove these files of a dead instance, and what earlier ones left, unless a living process maps them.

    What is still mapped is remembered. Returns what was removed. OSError when that or the memory cannot be written.
    """
    with _ONE_AT_A_TIME:
        before = left(run_dir)
        wanted = {**before, **dict.fromkeys(names, began)}
        removed = []
        for since in set(wanted.values()):
            removed += remove_shm([n for n, b in wanted.items() if b == since], since)
        rest = {n: b for n, b in wanted.items() if n not in removed and Path(n).exists()}
        if rest:
            atomic.write(run_dir / LEFT, {"boot": table.boot_id(), "names": rest})
        elif (run_dir / LEFT).exists():
            (run_dir / LEFT).unlink()
        return sorted(removed)
