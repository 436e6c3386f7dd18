"""What is known at one moment, frozen: the only thing that a decision sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from yrnode.model.cause import Cause
from yrnode.model.group import GroupKind, GroupRecord
from yrnode.model.memory import Memory
from yrnode.model.refusal import Refusal
from yrnode.model.spec import ComponentSpec
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

    `death`: the cause read from an exit or a failed launch of the current instance. `cleaned`: the residue room is
    done; `blocked` says what it found in the way. `gone`: nothing of the instance is left. `leaving`: why the current
    stop was asked for. `life`: the record's n of the group that it lives with, at its start. `restart`: an operator's
    request that is not carried out yet. `drilled`: the next fault was injected on purpose and does not count.
    `began`: when the instance was launched, in clock ticks since boot. `memory`: what was last seen before a start.
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
    """`cleared`: the life for which what the group keeps in the store has been deleted (cache)."""

    name: str
    record: GroupRecord
    members: tuple[str, ...]
    kind: GroupKind = GroupKind.SERVING
    cleared: int = 0
    wanted: bool = True
    unwanted: Cause | None = None
    restart: Cause | None = None


@dataclass(frozen=True)
class Snapshot:
    """`now` is monotonic seconds; `jitter` is a fresh number in [0, 1) for delays.

    `store_id`: the uuid that the store's data carries, empty while it is not known.
    """

    now: float
    jitter: float
    components: Mapping[str, ComponentView]
    groups: Mapping[str, GroupView] = field(default_factory=dict)
    store_available: bool = False
    store_since: float = 0.0
    store_id: str = ""
    closing: bool = False
    node: Mapping[str, Tally] = field(default_factory=dict)
    """What is checked of the node itself, by check."""
    store_refusal: Refusal | None = None
    """That the store takes no writes, though it answers."""
