"""Before a start: nothing of an earlier instance may be left, and nobody may sit on what the new one needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from enum import Enum

from yrnode.model.cause import Cause, Reason
from yrnode.model.spec import ComponentSpec
from yrnode.process import table
from yrnode.process.launch import Owner
from yrnode.residue import files, holders, orphans, ports, shm

UNLISTED_GRACE_S = 20.0
"""What a component that is no longer in the cluster file gets between TERM and KILL."""


class Kind(str, Enum):
    """What was removed: a closed set, so that it can label a metric."""

    PROCESS = "process"
    FILE = "file"
    MEMORY = "memory"


Note = Callable[[Kind, int], None]
"""Told of so many things of a kind that were removed."""


def unnoted(kind: Kind, count: int) -> None:
    """For whoever does not count."""


async def clear(spec: ComponentSpec, owner: Owner, names: Collection[str] = (), note: Note = unnoted) -> Cause | None:
    """Remove what is proven ours and unused. A cause when something is in the way that must not be removed.

    `names`: the components of this node; what runs of any other was started from an earlier cluster file.
    """
    if blocked := await _end_earlier(spec, owner, names, note):
        return blocked
    for need in spec.ports:
        taken = await ports.taken(need.host, need.port)
        if taken:
            where = f"port {need.host}:{need.port} ({need.purpose})"
            return _blocked(spec, f"{where} is not free: end its holder or change {need.purpose}", taken)
    try:
        for path in spec.stale:
            if holder := await asyncio.to_thread(holders.of, path):
                return _blocked(spec, f"{path} is in use: end its holder", holder)
        note(Kind.FILE, await asyncio.to_thread(files.remove_stale, spec.stale))
    except OSError as e:
        return _blocked(spec, "what an earlier instance left cannot be removed", f"{e.filename}: {e.strerror}")
    # it takes memory, but it is in nobody's way
    with contextlib.suppress(OSError):
        note(Kind.MEMORY, len(await asyncio.to_thread(shm.remove, owner.run_dir)))
    return None


async def _end_earlier(spec: ComponentSpec, owner: Owner, names: Collection[str], note: Note) -> Cause | None:
    mark, home = orphans.mark_of(owner.name, spec.name), owner.home
    alive = await asyncio.to_thread(orphans.marks, f"{owner.name}/", home)
    if not any(m.startswith(mark) or (names and orphans.component_of(m) not in names) for m in alive):
        # what is usual, by one look at the process table: on a host with thousands of processes each takes long
        return None
    left = await _end(lambda: orphans.find(mark, home, spec.log), spec.stop_grace_s, note)
    if names:
        left += await _end(lambda: orphans.unlisted(owner.name, home, names), UNLISTED_GRACE_S, note)
    if left:
        return _blocked(spec, "an earlier instance cannot be ended", ", ".join(map(str, left)))
    unproven = await asyncio.to_thread(orphans.doubtful, mark, home, spec.log)
    if unproven:
        text = "processes may be an earlier instance's, which cannot be proven: end them, or whatever started them"
        return _blocked(spec, text, ", ".join(map(str, unproven)))
    return None


async def _end(look: Callable[[], list[table.Proc]], grace_s: float, note: Note) -> list[table.Proc]:
    """As `orphans.end_all`, with a note of who is no longer there."""
    seen: set[tuple[int, int]] = set()

    def watched() -> list[table.Proc]:
        found = look()
        seen.update((p.pid, p.start_ticks) for p in found)
        return found

    left = await orphans.end_all(watched, grace_s)
    note(Kind.PROCESS, len(seen) - len(left))
    return left


def _blocked(spec: ComponentSpec, text: str, evidence: str) -> Cause:
    return Cause(Reason.RESIDUE, text, evidence, spec.name)
