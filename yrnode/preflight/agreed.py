"""What all nodes must have alike beside the cluster file: page size, versions, seed, and the models themselves.

Each node publishes its own with its key, so that any of them names who differs in what.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from yrnode.config.cluster import Cluster
from yrnode.config.layout import servers
from yrnode.preflight import ascend, packages, seed, weights
from yrnode.preflight.finding import Look


def facts(at: Look) -> dict[str, str]:
    """By name, as it is shown to people. What cannot be told is left out. Asks a program: takes up to 6 s."""
    cluster, node = at.host.cluster, at.host.node
    found = {"page size": str(os.sysconf("SC_PAGE_SIZE")), **ascend.versions(at.root, at.host.engine_env)}
    for spec in at.specs:
        if spec.kind == "rank":
            found[f"{seed.VARIABLE} of {spec.group}"] = spec.env.get(seed.VARIABLE, "unset")
    found |= models(cluster, node)
    python = packages.interpreter(cluster, at.host.engine_env.get("PATH"))
    if python and any(spec.kind == "rank" for spec in at.specs):
        has, _ = at.once.get(packages.NAME, lambda: packages.asked(python, at.specs))
        found |= {name: version for name, version in has.versions.items() if version}
    return found


def models(cluster: Cluster, node: str) -> dict[str, str]:
    """The digest of each group's model on this node, where it is a directory that can be read."""
    found = {}
    for name, group in cluster.groups.items():
        path = Path(group.model)
        if servers(name, group, node) and path.is_absolute() and path.is_dir():
            with contextlib.suppress(OSError):
                found[f"model of {name}"] = weights.digest(path)
    return found
