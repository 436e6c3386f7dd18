"""What is known at one moment, frozen: the only thing that a decision sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from yrnode.model.board import PROTOCOL, Board, Intent
from yrnode.model.cause import Cause
from yrnode.model.group import GroupKind, GroupRecord
from yrnode.model.memory import Memory
from yrnode.model.refusal import Refusal
from yrnode.model.routing import Drain, RouterView
from yrnode.model.spec import ComponentSpec
from yrnode.model.starts import Starts
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally


@dataclass(frozen=True)
class Failure:
    """One fault of a component: when (monotonic seconds), how long it had been ready before, and why."""

    at: float
    ready_for: float
    cause: Cause


@dataclass(frozen=True)
class ComponentView:
    """One component. Times are monotonic seconds.

    `death`: the cause read from an exit or a failed launch of the current instance, known since `died_at`.
    `cleaned`: the residue room is done; `blocked` says what it found in the way. `gone`: nothing of the instance is
    left. `leaving`: why the current stop was asked for. `life`: the record's n of the group that it lives with, at
    its start. `restart`: an operator's request that is not carried out yet. `drilled`: the next fault was injected
    on purpose and does not count. `began`: when the instance was launched, in clock ticks since boot. `memory`: what
    was last seen before a start.
    """

    spec: ComponentSpec
    state: State
    since: float
    wanted: bool = True
    unwanted: Cause | None = None
    restart: Cause | None = None
    cause: Cause | None = None
    instance: str = ""
    generation: int = 0
    life: int = 0
    pid: int | None = None
    began: int = 0
    deadline: float | None = None
    death: Cause | None = None
    died_at: float | None = None
    cleaned: bool = False
    blocked: Cause | None = None
    memory: Memory | None = None
    gone: bool = False
    leaving: Cause | None = None
    ready_at: float | None = None
    ready_seconds: float | None = None
    checks: Mapping[str, Tally] = field(default_factory=dict)
    history: tuple[Failure, ...] = ()
    restarts: int = 0
    drilled: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def plane(self) -> Plane:
        return self.spec.plane

    @property
    def proven(self) -> bool:
        return all(self.checks[c.name].passed for c in self.spec.gates)


@dataclass(frozen=True)
class GroupView:
    """One group as this node sees it: what it keeps on disk, and what it is made of.

    `record`: the newest that this node has read, kept before it is acted on, `learned_at` on the monotonic clock.
    `started`: the last life that this node has begun to start; `cleaned`: the last one that it promised to be clean
    for; `ended`: that it ended the last one on purpose. All three are kept too. `members`: components of this node,
    `nodes`: of the cluster file, in rank order. `busy`: a transaction of ours is under way. `ready_since`: every
    member of every node has been seen ready for `record.n`, without a break.
    """

    name: str
    record: GroupRecord
    members: tuple[str, ...]
    kind: GroupKind = GroupKind.SERVING
    nodes: tuple[str, ...] = ()
    digest: str = ""
    coupled: tuple[str, ...] = ()
    """Groups that begin a new life together with this one."""
    learned_at: float = 0.0
    started: int = 0
    cleaned: int = 0
    ended: bool = False
    busy: bool = False
    ready_since: float | None = None
    wanted: bool = True
    unwanted: Cause | None = None
    restart: Cause | None = None


@dataclass(frozen=True)
class Absence:
    """A node whose key is gone: since when the watch has shown that without a break, and whether anything listens
    where its part of each group would (`dead`: groups whose port there refuses, asked since then)."""

    since: float
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Snapshot:
    """`now` is monotonic seconds; `jitter` is a fresh number in [0, 1) for delays. `me`: this node's name.

    `board`: the shared keys as last read; `fresh`: it is complete and our own lease lives; `proven_at`: when it was
    last proven complete, monotonic; `settled`: every node has had the time to put back what a replaced or restored
    store has lost. `intents`: what operators want, the newest that this node has read or made.
    """

    now: float
    jitter: float
    components: Mapping[str, ComponentView]
    groups: Mapping[str, GroupView] = field(default_factory=dict)
    store_available: bool = False
    store_since: float = 0.0
    closing: bool = False
    me: str = ""
    board: Board = field(default_factory=Board)
    fresh: bool = False
    proven_at: float = 0.0
    settled: bool = True
    settles_at: float = 0.0
    """When it is settled: monotonic seconds."""
    protocol: int = PROTOCOL
    intents: Mapping[str, Intent] = field(default_factory=dict)
    saying: frozenset[str] = frozenset()
    """Intents, or this node's own fence, with a transaction under way."""
    absent: Mapping[str, Absence] = field(default_factory=dict)
    node: Mapping[str, Tally] = field(default_factory=dict)
    """What is checked of the node itself, by check."""
    store_refusal: Refusal | None = None
    """That the store takes no writes, though it answers."""
    router: RouterView | None = None
    """The router of this node, where it has one, with its members."""
    drain: Drain | None = None
    """That this node finishes its requests, to stop then."""
    offsets: Mapping[str, float] = field(default_factory=dict)
    """Seconds that other nodes' wall clocks are ahead of this one's, as far as that was seen."""
    starts: Starts = field(default_factory=Starts)
    """How long starts usually take here. For people."""

    @cached_property
    def _by_plane(self) -> Mapping[Plane, list[ComponentView]]:
        found: dict[Plane, list[ComponentView]] = {plane: [] for plane in Plane}
        for c in self.components.values():
            found[c.plane].append(c)
        return found

    def below(self, plane: Plane) -> Iterator[ComponentView]:
        """The components of lower planes: few, where a look at all of them for each rank would grow as a square."""
        return (c for p, found in self._by_plane.items() if p.order < plane.order for c in found)

    def above(self, plane: Plane) -> Iterator[ComponentView]:
        """The components of higher planes."""
        return (c for p, found in self._by_plane.items() if p.order > plane.order for c in found)

    @property
    def others(self) -> tuple[str, ...]:
        """The other nodes of the cluster file's groups."""
        return tuple(dict.fromkeys(n for g in self.groups.values() for n in g.nodes if n != self.me))
