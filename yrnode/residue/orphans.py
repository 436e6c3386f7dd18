"""Processes of an earlier instance: found by the mark in their environment, proven its own, ended, proven gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

from yrnode.process import proof, table
from yrnode.process.instance import signal_all
from yrnode.process.proof import Carriers


def mark_of(owner: str, component: str) -> str:
    """What the mark of every instance of a component begins with. `owner` is "<cluster>/<node>"."""
    return f"{owner}/{component}/"


def component_of(mark: str) -> str:
    """The component in a whole mark, "<cluster>/<node>/<component>/<instance>"."""
    return mark.split("/", 2)[-1].rpartition("/")[0]


def marks(prefix: str, home: Path) -> set[str]:
    """The marks that begin so and that a living process carries, whoever's it is: one look for many questions."""
    return set(_carriers(prefix, home))


def carriers(prefix: str, home: Path, log: Path | None = None) -> dict[str, Carriers]:
    """By mark: living processes with a mark that begins so, of this state directory. `log`: a component's own."""
    return {
        mark: proof.sort(procs, (), home / component_of(mark).replace("/", "-"), log)
        for mark, procs in _carriers(prefix, home).items()
    }


def _carriers(prefix: str, home: Path) -> dict[str, list[table.Proc]]:
    found: dict[str, list[table.Proc]] = {}
    for proc in table.scan():
        if proc.state in "ZX":
            continue
        mark, where = table.marks(proc.pid)
        # a yrnode that was started from a component's own shell carries its mark
        if mark.startswith(prefix) and where == str(home) and proc.pid != os.getpid():
            found.setdefault(mark, []).append(proc)
    return found


def find(prefix: str, home: Path, log: Path | None = None) -> list[table.Proc]:
    """Those of them that are the instances' own."""
    return [p for c in carriers(prefix, home, log).values() for p in c.own]


def doubtful(prefix: str, home: Path, log: Path | None = None) -> list[table.Proc]:
    """Those of them that may be the instances' own: they must neither be signalled nor started over."""
    return [p for c in carriers(prefix, home, log).values() for p in c.doubtful]


def unlisted(owner: str, home: Path, names: Collection[str]) -> list[table.Proc]:
    """Own processes of components of this node that the cluster file does not have (any more)."""
    found = carriers(f"{owner}/", home)
    return [p for mark, c in found.items() if component_of(mark) not in names for p in c.own]


async def end(
    prefix: str, home: Path, grace_s: float, kill_s: float = 5.0, log: Path | None = None
) -> list[table.Proc]:
    """TERM, then KILL, until none is left or the time is over. Returns who is left."""
    return await end_all(lambda: find(prefix, home, log), grace_s, kill_s)


async def end_all(look: Callable[[], list[table.Proc]], grace_s: float, kill_s: float = 5.0) -> list[table.Proc]:
    """The same for whatever `look` finds; it is called in a thread, until it finds nobody."""
    left = await asyncio.to_thread(look)
    signal_all(left, signal.SIGTERM)
    kill_at = time.monotonic() + grace_s
    give_up_at = kill_at + kill_s
    while left and time.monotonic() < give_up_at:
        await asyncio.sleep(0.1)
        left = await asyncio.to_thread(look)
        if time.monotonic() >= kill_at:
            signal_all(left, signal.SIGKILL)
    return left
