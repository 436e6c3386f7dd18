"""An etcd member as its node and the others see it, before it starts: values that `policy/members.py` decides on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from yrnode.model.cause import Cause


class Data(str, Enum):
    """What this node's data directory holds. etcd itself goes by the write-ahead log alone."""

    WHOLE = "whole"
    PARTS = "parts"  # files of a member without its log
    NONE = "none"


class Heard(str, Enum):
    """What the peer port of another node says."""

    SILENT = "silent"  # nobody answers
    FRESH = "fresh"  # a node that has never had a member, or a member that waits for the very first quorum
    FORMED = "formed"  # a member of a cluster that has had a quorum, or a node that remembers one


class Word(str, Enum):
    """What a node says on its peer port while its etcd does not run."""

    FRESH = "fresh"  # it has never had a member
    KNOWS = "knows"  # it had one, so there is a cluster


@dataclass(frozen=True)
class Listed:
    """One entry of etcd's member list. `started`: it has told the others where its clients find it."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    started: bool


@dataclass(frozen=True)
class Kept:
    """What this node remembers, outside the data directory, of the cluster that its member was last ready in.

    `cluster` and `member` are etcd's own numbers, 0 where they are not known; `store`: the uuid in the store.
    """

    cluster: int = 0
    member: int = 0
    store: str = ""


@dataclass(frozen=True)
class Living:
    """The cluster that answers with a quorum through `node`. `store`: empty where it holds nothing of ours."""

    node: str
    cluster: int
    store: str
    members: tuple[Listed, ...]


@dataclass(frozen=True)
class MemberView:
    """All that the next step is decided on. `nodes`: those of the cluster file, each with its peer URL, this one too.

    `kept`: None on a node that never had a ready member. `written`: the cluster and the member that the data
    themselves name, zeros where they do not. `outcast`: etcd, or what the others say, told that this data's member is
    none of theirs. `heard`: of each other node. `silent_s`: for how many seconds those that are silent have been,
    without a break, as far as this start has seen. `added`: the id that this node has just added. `cure`: what an
    operator may do where nobody has the data any more.
    """

    me: str
    nodes: Mapping[str, str]
    data: Data
    kept: Kept | None = None
    written: tuple[int, int] = (0, 0)
    outcast: bool = False
    heard: Mapping[str, Heard] = field(default_factory=dict)
    silent_s: Mapping[str, float] = field(default_factory=dict)
    living: Living | None = None
    added: int = 0
    cure: str = ""

    @property
    def peer_url(self) -> str:
        return self.nodes[self.me]


class MemberMove(str, Enum):
    START = "start"  # on the data that is there
    NEW = "new"  # the first start of a new cluster
    JOIN = "join"  # as a member that the living cluster lists and has never seen
    ASIDE = "aside"  # move the data out of the way
    REMOVE = "remove"  # this node's old entry in the member list
    ADD = "add"  # a new entry for this node
    WAIT = "wait"


@dataclass(frozen=True)
class MemberStep:
    """One step, and why. `id`: the entry to remove. `members`: for a join, the whole list."""

    move: MemberMove
    cause: Cause
    id: int = 0
    members: tuple[Listed, ...] = ()
