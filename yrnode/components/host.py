"""What a component's derivation takes from this host: its environment and its directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from yrnode.config.cluster import Cluster
from yrnode.config.layout import Places, places


@dataclass(frozen=True)
class Host:
    """`caller`: yrnode's own environment. `engine_env`: the same after `env_from`, for ranks and router. `nic`: the
    node's network interface; None where the file does not name it and this host has none with its address."""

    cluster: Cluster
    node: str
    caller: Mapping[str, str]
    engine_env: Mapping[str, str]
    nic: str | None = None

    @property
    def address(self) -> str:
        return self.cluster.nodes[self.node].address

    @property
    def places(self) -> Places:
        return places(self.cluster, self.node)

    def dir(self, component: str) -> Path:
        """A component's working directory."""
        return self.places.state_dir / component.replace("/", "-")

    def run_dir(self, component: str) -> Path:
        """Where a component keeps its sockets: short, since a socket's path holds at most 107 bytes."""
        return self.places.run_dir / component.replace("/", "-")

    def log(self, component: str) -> Path:
        """The file of a component's own output."""
        return self.places.log_dir / f"{component.replace('/', '-')}.log"
