"""What a component is, as plain data: what to run, how it proves itself, how it is ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yrnode.model.memory import MemoryNeed
from yrnode.model.state import Plane

RPC_PORT = "<rpc_port>"
"""Stands in a command line for a port that is chosen and tested for each generation."""

NIC = "<nic>"
"""Stands in an environment for the network interface of a node, where this host has none with its address. A variable
with it is left out at a start."""


@dataclass(frozen=True)
class CheckSpec:
    """One check of one component. Durations in seconds, thresholds in results in a row.

    `gate`: must have passed before the component counts as ready. `watch`: goes on while it is ready.
    `local`: it only looks at this host, so that out of time means a busy host and is unknown.
    `act`: False only observes. `witness`: never acts alone, only together with another (`policy/hang.py`).
    `after`: checks of the same component that must have passed before this one runs.
    `params` is read by the check of that `kind`.
    """

    name: str
    kind: str
    period_s: float
    timeout_s: float
    failures: int = 3
    successes: int = 1
    gate: bool = False
    watch: bool = True
    act: bool = True
    witness: bool = False
    local: bool = False
    after: tuple[str, ...] = ()
    gate_period_s: float = 0.2
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PortNeed:
    """A port that must be free before the start, with what it is for."""

    host: str
    port: int
    purpose: str


@dataclass(frozen=True)
class ComponentSpec:
    """One supervised unit of this node.

    `dir` is its working directory, made and owned by yrnode; `log` receives stdout and stderr.
    `launcher`: `argv` starts the real process in a session of its own and exits 0 when that is up (dscli).
    `files` are written before the start, path to text. `dirs` are made, `stale` files and folders are what an
    ended instance leaves: they are removed before a start and after a stop. `url`: where it serves.
    `lives_with`: a group that it stops and starts with, though it restarts alone too (the cache group).
    `takes_groups`: a restart of it restarts this node's serving groups too. `data_dir`: data that outlives instances
    (etcd). `memory`: what must be free before the start. `replicas`: how many nodes run it for each other (etcd).
    """

    name: str
    kind: str
    plane: Plane
    argv: tuple[str, ...]
    env: Mapping[str, str]
    dir: Path
    log: Path
    group: str | None = None
    rank: int | None = None
    lives_with: str | None = None
    takes_groups: bool = False
    unset: tuple[str, ...] = ()
    launcher: bool = False
    start_timeout_s: float = 60.0
    stop_grace_s: float = 10.0
    checks: tuple[CheckSpec, ...] = ()
    ports: tuple[PortNeed, ...] = ()
    dirs: tuple[Path, ...] = ()
    stale: tuple[Path, ...] = ()
    files: Mapping[Path, str] = field(default_factory=dict)
    data_dir: Path | None = None
    memory: MemoryNeed | None = None
    replicas: int = 1
    url: str = ""

    @property
    def gates(self) -> tuple[CheckSpec, ...]:
        return tuple(c for c in self.checks if c.gate)
