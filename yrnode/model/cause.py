"""Why something is done. The same words go into log, event, status and metric."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Reason(str, Enum):
    """The kind of a cause: a closed set, so that it can label a metric."""

    START = "start"  # nothing ran yet
    OPERATOR = "operator"  # somebody asked
    SHUTDOWN = "shutdown"  # yrnode itself is going down
    GROUP = "group"  # the whole group restarts, for another member's fault
    COUPLED = "coupled"  # another group, which it restarts with, begins a new life
    EXITED = "exited"  # a process ended that nobody had asked to end
    CHECK = "check"  # a check failed beyond its threshold
    HANG = "hang"  # alive and of no use: two witnesses
    START_TIMEOUT = "start-timeout"  # not proven within its start deadline
    START_FAILED = "start-failed"  # ended, or could not be launched, before it was proven
    CONFIGURATION = "configuration"  # what the user wrote cannot work: never retried
    DAMAGED = "damaged"  # what it keeps on disk cannot be read
    MEMBER = "member"  # etcd's cluster and this node's member of it do not fit together
    STORE = "store"  # the store's data is another than it was
    MEMORY = "memory"  # there is none for a start beside what is still mapped
    WORKER = "worker"  # the datasystem worker has restarted, and takes the ranks with it
    CLOCK = "clock"  # time itself: a clock was set, or this daemon did not run
    RESIDUE = "residue"  # something left over is in the way
    PROVEN = "proven"  # the gates have passed
    RECOVERED = "recovered"  # failing checks pass again
    GONE = "gone"  # nothing of the instance is left


FAULTS = frozenset(
    {
        Reason.EXITED,
        Reason.CHECK,
        Reason.HANG,
        Reason.START_TIMEOUT,
        Reason.START_FAILED,
        Reason.CONFIGURATION,
        Reason.DAMAGED,
        Reason.MEMBER,
        Reason.STORE,
    }
)
"""Reasons that count against a restart budget."""


@dataclass(frozen=True)
class Cause:
    """Why, in one line for people (`text`), with what was seen (`evidence`) and whose fault it was (`component`)."""

    reason: Reason
    text: str
    evidence: str = ""
    component: str = ""

    @property
    def fault(self) -> bool:
        return self.reason in FAULTS

    def __str__(self) -> str:
        return f"{self.text} ({self.evidence})" if self.evidence else self.text
