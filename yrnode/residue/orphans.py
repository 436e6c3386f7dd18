"""Processes of an earlier instance: found by the mark in their environment, ended, proven gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from yrnode.process import table
from yrnode.process.instance import signal_all


def mark_of(owner: str, component: str) -> str:
    """What the mark of every instance of a component begins with. `owner` is "<cluster>/<node>"."""
    return f"{owner}/{component}/"


def find(prefix: str, home: Path) -> list[table.Proc]:
    """Living processes with a mark that begins so, of this state directory."""
    found = []
    for proc in table.scan():
        if proc.state in "ZX":
            continue
        mark, where = table.marks(proc.pid)
        # a yrnode that was started from a component's own shell carries its mark
        if mark.startswith(prefix) and where == str(home) and proc.pid != os.getpid():
            found.append(proc)
    return found


async def end(prefix: str, home: Path, grace_s: float, kill_s: float = 5.0) -> list[table.Proc]:
    """TERM, then KILL, until none is left or the time is over. Returns who is left."""
    left = await asyncio.to_thread(find, prefix, home)
    signal_all(left, signal.SIGTERM)
    kill_at = time.monotonic() + grace_s
    give_up_at = kill_at + kill_s
    while left and time.monotonic() < give_up_at:
        await asyncio.sleep(0.1)
        left = await asyncio.to_thread(find, prefix, home)
        if time.monotonic() >= kill_at:
            signal_all(left, signal.SIGKILL)
    return left
