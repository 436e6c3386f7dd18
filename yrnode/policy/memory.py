"""Whether there is memory for a worker beside what clients of a dead one still map, and who must let go if not.

A dead worker's shared memory is freed when its last client has unmapped it. A client does that some seconds after it
has lost its worker, unless it still uses what it has read. So the next worker starts beside it where it fits, waits a
while for clients to let go, and then ranks that hold the old memory restart with it.
"""

from __future__ import annotations

from collections.abc import Collection

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind
from yrnode.model.memory import Held
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import State
from yrnode.policy import component

LET_GO_S = 20.0
"""What clients get to let go by themselves: they were seen to do it 5 to 7 s after their worker's death, and one that
is in the middle of a call when that has run out of time (9 s)."""
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
    evidence = f"{_mib(seen.free)} of {_mib(need.size)} MiB free, {seen.where}"
    text = "not enough memory is free"
    if seen.held:
        text = f"no memory for a second worker beside what {_names(seen.held)} still map"
        evidence = f"{_mib(_size(c, seen.held))} MiB mapped, {evidence}"
    if _size(c, seen.held) < lacking(c):
        text += ": end what takes it, or lower datasystem.shared_memory"
    return Cause(Reason.MEMORY, f"not started: {text}", evidence, c.name)


def evidence(c: ComponentView, g: GroupView, s: Snapshot) -> Cause | None:
    """Why the group must let go of what it maps, so that `c` can start. Only where that is what keeps it from it."""
    if c.state is not State.CLEANING or c.memory is None or not lacking(c) or component.missing(c, s):
        return None
    if s.now < c.memory.short_since + LET_GO_S:
        return None
    serving = {m for other in s.groups.values() if other.kind is GroupKind.SERVING for m in other.members}
    theirs = _only_of(c.memory.held, serving)
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
    """Bytes. A dead worker had no more than the next one asks for."""
    return min(sum(h.size for h in held), c.spec.memory.size if c.spec.memory else 0)


def _names(held: Collection[Held]) -> str:
    return ", ".join(sorted({name for h in held for name in h.holders}))


def _mib(size: int) -> int:
    return max(0, size) // _MIB
