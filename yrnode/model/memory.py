"""Memory that a start asks for, and what was seen of it on the host. All sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryNeed:
    """What a component takes for itself. `huge`: from huge pages."""

    size: int
    huge: bool = False


@dataclass(frozen=True)
class Held:
    """Memory of a dead worker that living processes still map: components by name, others in words for people."""

    size: int
    holders: frozenset[str]


@dataclass(frozen=True)
class Memory:
    """`total`: what there would be if nobody used any. `where`: whose account it is, for people.

    `held` is looked for only where `free` is too little, which is so since `short_since`, in monotonic seconds.
    """

    free: int
    total: int
    where: str
    held: tuple[Held, ...] = ()
    short_since: float = 0.0
