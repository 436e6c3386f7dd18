"""A group's record: the number of its current life and how far that life has come."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from yrnode.model.cause import Cause


class Stage(str, Enum):
    STOP = "stop"  # every member stops and cleans
    GO = "go"  # every member may start, once
    FAILED = "failed"  # given up, until an operator says restart

    @property
    def order(self) -> int:
        return list(Stage).index(self)


@dataclass(frozen=True)
class GroupRecord:
    """`n` counts lives from 1. `fails` counts faults in a row. `not_before` is the earliest go, monotonic seconds."""

    n: int
    stage: Stage
    cause: Cause
    fails: int = 0
    not_before: float = 0.0
    rpc_port: int | None = None


class GroupMove(str, Enum):
    BUMP = "bump"  # n -> n+1, stage stop
    GO = "go"
    FAIL = "fail"  # n -> n+1, stage failed
