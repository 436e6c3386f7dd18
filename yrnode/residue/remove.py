"""Remove one judged item. What was found a moment ago is proven again: it may have come to life since."""

from __future__ import annotations

import os
import time
from pathlib import Path

from yrnode.process import table
from yrnode.process.instance import members_of
from yrnode.residue import datadir, files, holders, inventory, orphans, shm
from yrnode.residue.inventory import Scope
from yrnode.residue.item import Item

GRACE_S = 20.0


async def remove(item: Item, scope: Scope) -> str:
    """Empty when it is gone; else why not."""
    try:
        match item.kind:
            case inventory.PROCESSES:
                return await _processes(item, scope)
            case inventory.MEMORY:
                return _memory(item, scope)
            case inventory.DATA:
                return _move_aside(item)
            case _:
                return _files(item)
    except OSError as e:
        return f"{e.filename}: {e.strerror}"


async def _processes(item: Item, scope: Scope) -> str:
    kept = next((r for r in inventory.records(scope).values() if r.mark == item.mark), None)
    component = orphans.component_of(item.mark)
    if kept is not None and component in scope.names:
        return "it has become the present instance"
    home = scope.owner.home

    def look() -> list[table.Proc]:
        if kept is not None:
            return members_of(kept, home / component.replace("/", "-"), None)
        return orphans.find(item.mark, home)

    left = await orphans.end_all(look, GRACE_S)
    return f"cannot be ended: {', '.join(map(str, left))}" if left else ""


def _memory(item: Item, scope: Scope) -> str:
    shm.remove(scope.owner.run_dir, item.paths, item.began)
    left = [p for p in item.paths if os.path.lexists(p)]
    return f"still mapped: {', '.join(left)}" if left else ""


def _files(item: Item) -> str:
    paths = [Path(p) for p in item.paths]
    holder = next(filter(None, map(holders.of, paths)), "")
    if not holder:
        files.remove_stale(paths)
    return holder


def _move_aside(item: Item) -> str:
    directory = Path(item.paths[0])
    held = datadir.why_locked(directory)
    if not held:
        aside = directory.with_name(f"{directory.name}.moved-{time.strftime('%Y%m%dT%H%M%S')}")
        if aside.exists():
            return f"{aside} exists already"
        directory.rename(aside)
    return held
