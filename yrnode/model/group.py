"""A group's record: the number of its current life and how far that life has come."""

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
        return list(Stage).index(self)


@dataclass(frozen=True)
class GroupRecord:
    """`n` counts lives from 1. `fails` counts faults in a row. `not_before`: the earliest go, monotonic seconds.

    `rpc_port`: this life's data-parallel port, where the file gives none. `store`: the store's uuid at go (cache).
    """

    n: int
    stage: Stage
    cause: Cause
    fails: int = 0
    not_before: float = 0.0
    rpc_port: int | None = None
    store: str = ""


class GroupMove(str, Enum):
    BUMP = "bump"  # n -> n+1, stage stop
    CLEAR = "clear"  # delete what a stopped cache group keeps in the store
    GO = "go"
    FAIL = "fail"  # n -> n+1, stage failed
