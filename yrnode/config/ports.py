"""The fixed ports of each node, and which of them meet. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from yrnode.config import hccl, layout
from yrnode.config.cluster import Cluster
from yrnode.config.yaml import KeyPath, dotted

LAST_PORT = 65535


@dataclass(frozen=True)
class PortUse:
    """Ports `first` to `last` that one thing listens on. `hccl`: of devices; `implied`: by its own default."""

    first: int
    last: int
    what: str
    path: KeyPath
    hccl: bool = False
    implied: bool = False


def node_ports(cluster: Cluster, node: str) -> list[PortUse]:
    """Every port that the cluster file fixes on a node."""
    uses: list[PortUse] = []

    def use(first: int, what: str, *path: str | int, count: int = 1) -> None:
        uses.append(PortUse(first, first + count - 1, what, path))

    # first, so that a fault is told where the other port is written: HCCL's are, if at all, in a variable
    for name in cluster.groups:
        found = hccl.range_of(cluster, name, node)
        if found is not None:
            last = found.first + found.count - 1
            uses.append(PortUse(found.first, last, f"HCCL of {name}", found.path, hccl=True, implied=found.implied))
    if node in layout.etcd_nodes(cluster):
        use(cluster.etcd.client_port, "etcd's client port", "etcd", "client_port")
        use(cluster.etcd.peer_port, "etcd's peer port", "etcd", "peer_port")
    use(cluster.datasystem.port, "the datasystem worker", "datasystem", "port")
    for name, group in cluster.groups.items():
        http = [server for server in layout.servers(name, group, node) if server.port is not None]
        if http:
            use(group.port, f"group {name}", "groups", name, "port", count=len(http))
        if group.rpc_port and layout.data_parallel_size(group) > 1 and layout.head_node(group) == node:
            use(group.rpc_port, f"the rpc port of {name}", "groups", name, "rpc_port")
        if group.kv_connector.mooncake and group.ranks.get(node):
            # Each device listens on kv_port plus its number in the whole group.
            width = layout.devices_per_rank(group)
            first = group.kv_connector.mooncake.kv_port + layout.first_rank(group, node) * width
            key = ("groups", name, "kv_connector", "mooncake", "kv_port")
            use(first, f"Mooncake of {name}", *key, count=group.ranks[node] * width)
    if cluster.router and cluster.router.node == node:
        use(cluster.router.port, "the router", "router", "port")
    own = ("nodes", node, "api", "listen") if cluster.nodes[node].api else ("api", "listen")
    use(layout.api_of(cluster, node).port, "yrnode's HTTP interface", *own)
    return uses


def overlaps(cluster: Cluster) -> Iterator[tuple[KeyPath, str]]:
    """A fault for each two uses of one port on one node, and for ranges that leave the port numbers.

    Not for two that may get along: see `doubts`.
    """
    said: set[tuple[KeyPath, KeyPath]] = set()
    for node in cluster.nodes:
        uses = node_ports(cluster, node)
        for at, use in enumerate(uses):
            if use.last > LAST_PORT:
                yield use.path, f"it reaches port {use.last} on {node}; write a lower port"
            for other in uses[:at]:
                met = _met(use, other)
                if met and not _unsure(use, other) and (other.path, use.path) not in said:
                    said.add((other.path, use.path))
                    there = f"{other.what} ({dotted(other.path)})"
                    yield use.path, f"port {met} of {node} is used by {there} too; write another port"


def doubts(cluster: Cluster, node: str) -> Iterator[tuple[PortUse, PortUse, int]]:
    """Two uses that may meet at a port, though nobody knows it: HCCL's own range, or one that two groups have."""
    uses = node_ports(cluster, node)
    for at, use in enumerate(uses):
        for other in uses[:at]:
            if (met := _met(use, other)) and _unsure(use, other):
                yield other, use, met


def _met(one: PortUse, other: PortUse) -> int:
    """The first port that both use; 0 where there is none."""
    met = max(one.first, other.first)
    return met if met <= min(one.last, other.last) else 0


def _unsure(one: PortUse, other: PortUse) -> bool:
    # from one base on, each device of the two groups has a port of its own
    return one.implied or other.implied or (one.hccl and other.hccl and one.first == other.first)
