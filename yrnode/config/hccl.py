"""HCCL's ports on the host, where a group's devices find each other: a range for each group of a node. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from yrnode.config import layout
from yrnode.config.cluster import Cluster
from yrnode.config.render import env_layers, env_tables
from yrnode.config.yaml import KeyPath

BASE_PORT = "HCCL_IF_BASE_PORT"
PORT_RANGE = "HCCL_HOST_SOCKET_PORT_RANGE"
"""Goes over the base port; it may be `auto`."""
DEFAULT = 60000
COUNT = 32
"""Ports from the base on. CANN before 8.2 took 16."""
LOWEST, HIGHEST = 1024, 65520
# above the ports that Linux deals out
_FIRST = 61000


@dataclass(frozen=True)
class Range:
    """`path`: the key that says so. `implied`: nothing does, and it is HCCL's own, as far as devices reach."""

    first: int
    count: int
    path: KeyPath
    implied: bool = False


def used(cluster: Cluster, name: str, node: str) -> bool:
    """Whether the group has more than one device, and a part on this node, whose address is no loopback one."""
    group = cluster.groups[name]
    devices = layout.devices_per_rank(group) * layout.data_parallel_size(group)
    here = group.ranks.get(node, 0) > 0
    return here and devices > 1 and not IPv4Address(cluster.nodes[node].address).is_loopback


def derived_base(cluster: Cluster, name: str) -> int | None:
    """Where the group's range begins; None, and so HCCL's own, for a group that shares no node with another."""
    sharing = [group for group in cluster.groups if any(_neighbours(cluster, group, n) for n in cluster.nodes)]
    return _FIRST + COUNT * sharing.index(name) if name in sharing else None


def _neighbours(cluster: Cluster, name: str, node: str) -> list[str]:
    if not used(cluster, name, node):
        return []
    return [other for other in cluster.groups if other != name and used(cluster, other, node)]


def typed(cluster: Cluster, name: str, node: str, variable: str) -> tuple[KeyPath, str] | None:
    """The nearest place that sets it for the group's ranks on the node, with its value."""
    if variable in cluster.groups[name].unset:
        return None
    layers = reversed(env_layers(cluster, name, node))
    return next((((*path, variable), env[variable]) for path, env in layers if variable in env), None)


def range_of(cluster: Cluster, name: str, node: str) -> Range | None:
    """The group's ports on a node; None where nothing is known of them."""
    if not used(cluster, name, node) or typed(cluster, name, node, PORT_RANGE):
        return None
    given = typed(cluster, name, node, BASE_PORT)
    if given is None:
        at: KeyPath = ("groups", name)
        base = derived_base(cluster, name)
        if base is not None:
            return Range(base, COUNT, at)
        # a device takes the base and its own number
        reach = max(layout.node_devices(cluster.groups[name], node)) + 1
        return Range(DEFAULT, min(COUNT, reach), at, implied=True)
    path, value = given
    # what stands for another variable is known only on the host
    return Range(int(value), COUNT, path) if value.isdecimal() else None


def faults(cluster: Cluster) -> Iterator[tuple[KeyPath, str]]:
    """Values that HCCL does not take."""
    for path, env in env_tables(cluster):
        value = env.get(BASE_PORT, "${}")
        if "${" not in value and not (value.isdecimal() and LOWEST <= int(value) <= HIGHEST):
            text = f'"{value}" is no port that HCCL takes; write one from {LOWEST} to {HIGHEST}'
            yield (*path, BASE_PORT), text
