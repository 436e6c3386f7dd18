"""The keys that all nodes share, as one node has last read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from yrnode.model.group import GroupRecord, Member

PROTOCOL = 1
"""Another number means that the shared keys mean something else: nodes of two numbers change none of them."""


@dataclass(frozen=True)
class Intent:
    """What an operator wants of a target: a group, a node, or `all` (pause alone). The higher `seq` wins, in whatever
    store it is found. `drain_s`: a node finishes its requests first, for so many seconds at most; 0: it does not.
    `at`: wall seconds, for people. `revision`: of its last put, where it was read from the store.
    """

    seq: int
    run: bool = True
    paused: bool = False
    drain_s: float = 0.0
    by: str = ""
    why: str = ""
    at: float = 0.0
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Peer:
    """A node that is there: its key lives on a lease. `digests`: what its cluster file means, by group. `heard`: the
    number of the last intent that it has kept, by target. `at`: its wall clock when it wrote this. `facts`: what all
    nodes should have alike, by name: versions, models, the seed; empty until its daemon has looked.
    """

    instance: str
    boot: str = ""
    version: str = ""
    protocol: int = PROTOCOL
    api: str = ""
    at: float = 0.0
    digests: Mapping[str, str] = field(default_factory=dict)
    heard: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """A group's record in the store, with the revision of its last put."""

    record: GroupRecord
    revision: int


@dataclass(frozen=True)
class Fence:
    """An operator's word that a node is off."""

    by: str
    why: str = ""
    at: float = 0.0
    revision: int = 0


@dataclass(frozen=True)
class Board:
    """`revision`: the store's revision up to which it is complete. `members`: by group, then node."""

    revision: int = 0
    store_id: str = ""
    records: Mapping[str, Stored] = field(default_factory=dict)
    members: Mapping[str, Mapping[str, Member]] = field(default_factory=dict)
    intents: Mapping[str, Intent] = field(default_factory=dict)
    fences: Mapping[str, Fence] = field(default_factory=dict)
    nodes: Mapping[str, Peer] = field(default_factory=dict)

    def phases(self, group: str) -> Mapping[str, Member]:
        """What each node says of its part of a group."""
        return self.members.get(group, {})

    def with_record(self, group: str, record: GroupRecord, revision: int) -> Board:
        return replace(self, records={**self.records, group: Stored(record, revision)})

    def with_member(self, group: str, node: str, member: Member) -> Board:
        return replace(self, members={**self.members, group: {**self.phases(group), node: member}})


class BoardMove(str, Enum):
    """What a node does about the keys that belong to no group. The target is the intent's, or the node."""

    HEED = "heed"  # keep a newer intent, then act on it
    SAY = "say"  # put our newer intent into the store
    UNFENCE = "unfence"  # this node is back, and runs nothing old
