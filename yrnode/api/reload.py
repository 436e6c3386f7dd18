"""Reads the cluster file again and says what a change of it means. The daemon keeps the file of its own start.

Nothing of a changed file is taken by a daemon that runs: what it watches and what it would start have to be of one
file, and a group starts only where all its nodes have the same. A new daemon takes the file, and lets run what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from yrnode.components import node as components
from yrnode.components.host import Host
from yrnode.config.cluster import Cluster
from yrnode.config.digest import group_digest
from yrnode.config.layout import group_nodes
from yrnode.config.node import nic_of
from yrnode.model.spec import ComponentSpec


@dataclass(frozen=True)
class Loaded:
    """A cluster file as a daemon sees it: `file` is its place, `specs` are those of its own node."""

    file: str
    host: Host
    specs: list[ComponentSpec]

    @property
    def cluster(self) -> Cluster:
        return self.host.cluster


@dataclass(frozen=True)
class Runs:
    """Who starts another daemon when this one ends: `by` is `systemd` (with the unit's name; `user`: of a user's own
    manager), `init` (`yrnode run --init`), or empty for nobody. `pid`: who takes SIGUSR1, the init or the daemon."""

    by: str
    pid: int
    unit: str = ""
    user: bool = False


class Reload:
    """`loaded`: what the daemon has; `read()`: the same of the file as it is now, or UsageError."""

    def __init__(self, loaded: Loaded, read: Callable[[], Loaded], runs: Runs) -> None:
        self._loaded, self._read, self._runs = loaded, read, runs

    def __call__(self) -> dict[str, Any]:
        """Reads files and runs the scripts of `env_from`, so it belongs into a thread.

        `{"file", "node", "changed": [{"key", "old", "new"}], "components": {NODE: [names]}, "groups": [names],
        "stranded": [keys], "runs": {…}}`: the components whose process would be another one, by node, those that are
        new or gone among them; the groups whose ranks are among those; what a node that runs cannot follow; `Runs`.
        """
        # not at the daemon's start
        from yrnode.config.differs import differences, stranded

        old, new = self._loaded, self._read()
        found = _restarts(old, new)
        return {
            "file": new.file,
            "node": new.host.node,
            "changed": [d.__dict__ for d in differences(old.cluster, new.cluster)],
            "components": {node: names for node, names in found.items() if names},
            "groups": _groups(old.cluster, new.cluster, found),
            "stranded": stranded(old.cluster, new.cluster, new.host.node),
            "runs": self._runs.__dict__,
        }


def _restarts(old: Loaded, new: Loaded) -> dict[str, list[str]]:
    nodes = dict.fromkeys((*new.cluster.nodes, *old.cluster.nodes))
    return {node: _differ(_specs(old, node), _specs(new, node)) for node in nodes}


def _specs(of: Loaded, node: str) -> Sequence[ComponentSpec]:
    """Of another node as far as this one can tell: by its own environment."""
    if node == of.host.node:
        return of.specs
    if node not in of.cluster.nodes:
        return ()
    own = of.cluster.nodes[node]
    return components.specs(replace(of.host, node=node, nic=own.nic or nic_of(own.address)))


def _differ(old: Sequence[ComponentSpec], new: Sequence[ComponentSpec]) -> list[str]:
    before, after = {s.name: _process(s) for s in old}, {s.name: _process(s) for s in new}
    return [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]


def _process(s: ComponentSpec) -> tuple[object, ...]:
    """What makes its process: all else is how yrnode looks at it."""
    return s.argv, dict(s.env), s.unset, dict(s.files), s.dir, s.log, s.launcher


def _groups(old: Cluster, new: Cluster, found: dict[str, list[str]]) -> list[str]:
    """Also one whose nodes must agree again, though no command line here says so."""
    ranks = {name.split("/")[1] for names in found.values() for name in names if name.startswith("rank/")}
    names = dict.fromkeys((*new.groups, *old.groups))
    return [name for name in names if name in ranks or _meaning(old, name) != _meaning(new, name)]


def _meaning(cluster: Cluster, name: str) -> object:
    return (group_digest(cluster, name), group_nodes(cluster.groups[name])) if name in cluster.groups else None
