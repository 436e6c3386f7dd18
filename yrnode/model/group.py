"""A group: its record, which all nodes share, and what each node says of its own part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from yrnode.model.cause import Cause


class GroupKind(str, Enum):
    SERVING = "serving"  # ranks: they live and die together
    CACHE = "cache"  # workers: each restarts alone, all together when their ring is lost


class Stage(str, Enum):
    STOP = "stop"  # every member stops and cleans
    GO = "go"  # every member may start, once
    FAILED = "failed"  # given up, until an operator says restart

    @property
    def order(self) -> int:
        return _ORDER[self]


_ORDER = {stage: i for i, stage in enumerate(Stage)}


@dataclass(frozen=True)
class GroupRecord:
    """The group's present life. The store's copy is the one that counts; each node keeps the newest that it has read.

    `n` counts lives from 1. `fails`: faults in a row. `backoff_s`: how long a node that has read it waits before go.
    `rpc_port`: this life's data-parallel port, where the file gives none. `store`: the store's uuid at go (cache).
    `members`: the nodes that may have started this life or an earlier one. `digest`: the configuration at go.
    `by`: the node that wrote it, `at`: when, wall seconds for people.
    """

    n: int
    stage: Stage
    cause: Cause
    fails: int = 0
    backoff_s: float = 0.0
    rpc_port: int | None = None
    store: str = ""
    members: tuple[str, ...] = ()
    digest: str = ""
    by: str = ""
    at: float = 0.0

    @property
    def order(self) -> tuple[int, int]:
        """By n, then stop < go < failed. Nothing ever goes back in this order but a store that has lost something."""
        return self.n, self.stage.order


class Phase(str, Enum):
    """How far a node's part of a group has come with the life `n`."""

    HELD = "held"  # an operator keeps it stopped
    STOPPING = "stopping"
    CLEAN = "clean"  # nothing of an earlier life is left: a promise, kept on disk before it is told
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class Member:
    """What a node says of its part of a group. `evidence`: what keeps it, where something does."""

    n: int
    phase: Phase
    digest: str = ""
    evidence: str = ""
    rpc_port: int | None = None


class GroupMove(str, Enum):
    LEARN = "learn"  # keep the store's record, then act on it
    PUT_BACK = "put-back"  # the store has an older record than this node, or none
    BUMP = "bump"  # n -> n+1, stage stop
    FAIL = "fail"  # n -> n+1, stage failed
    GO = "go"  # n, stage stop -> go
    FORGIVE = "forgive"  # a long life: the row of faults is over
    TELL = "tell"  # publish how far this node has come
