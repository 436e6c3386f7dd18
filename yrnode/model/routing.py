"""What stands behind the router: the places that a rank has there, and what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Role(str, Enum):
    """What the router sends a server, in vllm-router's words."""

    PREFILL = "prefill"
    DECODE = "decode"
    REGULAR = "regular"


@dataclass(frozen=True)
class Route:
    """One server of the router's groups. `nodes`: all nodes of its group, in rank order."""

    rank: str
    group: str
    node: str
    role: Role
    url: str
    nodes: tuple[str, ...] = ()


class Standing(str, Enum):
    """Whether a server should get requests now. Unknown changes nothing."""

    IN = "in"
    OUT = "out"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Judged:
    standing: Standing
    why: str


@dataclass(frozen=True)
class RouteView:
    """`listed`: the router has it. `leaving`: it was told to drop it, and lists it until it has no request at all."""

    route: Route
    judged: Judged
    listed: bool = False
    leaving: bool = False

    @property
    def serves(self) -> bool:
        return self.listed and not self.leaving


@dataclass(frozen=True)
class RouterView:
    """The router as its own node sees it. `error`: why its members cannot be read or changed; empty when they can.
    `others`: what it lists that is no server of its groups."""

    kind: str
    url: str
    members: Mapping[str, RouteView] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Drain:
    """A node that finishes its requests before it stops. Times are monotonic seconds.

    `out`: its groups' ranks are out of the router, as far as that can be told. `unfinished`: requests of the groups'
    ranks at the last look, None where one of them does not say. `quiet`: looks in a row that found none.
    """

    since: float
    deadline: float
    out: bool = False
    unfinished: int | None = None
    quiet: int = 0
    evidence: str = ""
