"""Whether there is memory for a worker beside what clients of a dead one still map, and who must let go if not.

A dead worker's shared memory is freed only when its last client has unmapped it, which a client does once it has
reached the next worker. So the next one starts beside it where it fits, and no rank notices. Where it does not fit,
the ranks that hold the old memory restart with it.
"""

from __future__ import annotations

from collections.abc import Collection

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind
from yrnode.model.memory import Held
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import State
from yrnode.policy import component

_MIB = 1024**2


def lacking(c: ComponentView) -> int:
    """Bytes that are missing for a start; 0 when it fits, needs none, or nothing is known."""
    if c.spec.memory is None or c.memory is None:
        return 0
    return max(0, c.spec.memory.size - max(0, c.memory.free))


def shortage(c: ComponentView) -> Cause | None:
    """Why it cannot start now, with the cure. A configuration error when it never can."""
    need, seen = c.spec.memory, c.memory
    if need is None or seen is None or not lacking(c):
        return None
    if seen.total < need.size:
        cure = "reserve more (vm.nr_hugepages) or lower" if need.huge else "lower"
        text = f"datasystem.shared_memory is more than this node has: {cure} it"
        return Cause(Reason.CONFIGURATION, text, f"{_mib(need.size)} of {_mib(seen.total)} MiB, {seen.where}", c.name)
    held = seen.held or ()
    evidence = f"{_mib(seen.free)} of {_mib(need.size)} MiB free, {seen.where}"
    if held:
        text = f"no memory for a second worker beside what {_names(held)} still map"
        evidence += f"; {_mib(_size(c, held))} MiB mapped"
    else:
        text = "not enough memory is free"
    if seen.held is not None and _size(c, held) < lacking(c):
        text += ": end what takes it, or lower datasystem.shared_memory"
    return Cause(Reason.MEMORY, f"not started: {text}", evidence, c.name)


def evidence(c: ComponentView, g: GroupView, s: Snapshot) -> Cause | None:
    """Why the group must let go of what it maps, so that `c` can start. Only where that is what keeps it from it."""
    if c.state is not State.CLEANING or c.memory is None or not lacking(c) or component.missing(c, s):
        return None
    serving = {m for other in s.groups.values() if other.kind is GroupKind.SERVING for m in other.members}
    theirs = _only_of(c.memory.held or (), serving)
    if _size(c, theirs) < lacking(c) or not any(h.holders & set(g.members) for h in theirs):
        return None
    text = f"no memory for a second {c.name} beside what {_names(theirs)} still map"
    size = c.spec.memory.size if c.spec.memory else 0
    seen = f"{_mib(_size(c, theirs))} MiB mapped, {_mib(c.memory.free)} of {_mib(size)} MiB free, {c.memory.where}"
    return Cause(Reason.MEMORY, text, seen, c.name)


def _only_of(held: Collection[Held], holders: Collection[str]) -> list[Held]:
    """What is free once all of these have let go: nobody else maps it."""
    return [h for h in held if h.holders <= set(holders)]


def _size(c: ComponentView, held: Collection[Held]) -> int:
    return sum(h.size for h in held)


def _names(held: Collection[Held]) -> str:
    return ", ".join(sorted({name for h in held for name in h.holders}))


def _mib(size: int) -> int:
    return max(0, size) // _MIB
