"""What a check is: one probe of one instance, a verdict with evidence out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from yrnode.checks.ledger import Ledger, Ledgers
from yrnode.checks.pulse import Pulse
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result
from yrnode.policy.hits import Hits
from yrnode.store.interface import Store
from yrnode.store.members import Members


@dataclass(frozen=True)
class Target:
    """The instance that is probed. `pid` is None until its main process is known.

    `engine`: the one that is meant of several behind one server, by its rank.
    """

    component: str
    instance: str
    pid: int | None
    engine: int | None = None

    @property
    def asked(self) -> str:
        """Whose ledger it is."""
        return self.component if self.engine is None else f"{self.component} engine {self.engine}"


@dataclass(frozen=True)
class Tools:
    """What checks share. `store_steady_s`: for how many seconds the store has answered without a break.

    `unsure(group)`: why not every rank of the group is known to serve, empty when all are; a request to the survivor
    of another's death would kill it. `own`: the store through this node's etcd alone, and `members`: how that one and
    the others are asked; None where this node runs none. `hits`: what the ranks' caches have counted.
    """

    http: aiohttp.ClientSession
    store: Store
    store_steady_s: Callable[[], float]
    pulse: Pulse = field(default_factory=Pulse)
    ledgers: Ledgers = field(default_factory=Ledgers)
    unsure: Callable[[str], str] = lambda _: ""
    own: Store | None = None
    members: Members | None = None
    hits: Hits = field(default_factory=Hits)


class Check(Protocol):
    """A probe that raises is recorded as unknown by whoever runs it; one that is out of time has failed.

    `asker`: the pid of a process of its own that asks, of which it is counted how long it waits for a core.
    """

    @property
    def asker(self) -> int | None: ...

    async def probe(self, target: Target) -> Result: ...

    async def close(self) -> None: ...


class Stateless:
    """A check that keeps nothing between probes."""

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        self.spec = spec
        self.tools = tools

    @property
    def asker(self) -> int | None:
        return None

    def param(self, name: str) -> Any:
        return self.spec.params[name]

    def clock(self) -> float:
        return self.tools.pulse.clock()

    def ledger(self, target: Target) -> Ledger:
        return self.tools.ledgers.of(target.asked, target.instance)

    async def close(self) -> None:
        await asyncio.sleep(0)
