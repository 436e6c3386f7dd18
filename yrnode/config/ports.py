"""The fixed ports of each node, and which of them meet. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from yrnode.config import hccl, layout
from yrnode.config.cluster import Cluster
from yrnode.config.yaml import KeyPath, dotted

LAST_PORT = 65535


@dataclass(frozen=True)
class PortUse:
    """Ports `first` to `last` that one thing listens on."""

    first: int
    last: int
    what: str
    path: KeyPath


def node_ports(cluster: Cluster, node: str) -> list[PortUse]:
    """Every port that the cluster file fixes on a node."""
    uses: list[PortUse] = []

    def use(first: int, what: str, *path: str | int, count: int = 1) -> None:
        uses.append(PortUse(first, first + count - 1, what, path))

    # first, so that a fault is told where the other port is written: HCCL's are, if at all, in a variable
    for name in cluster.groups:
        found = hccl.range_of(cluster, name, node)
        if found is not None:
            use(found[1], f"HCCL of {name}", *found[0], count=hccl.COUNT)
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
    """A fault for each two uses of one port on one node, and for ranges that leave the port numbers."""
    said: set[tuple[KeyPath, KeyPath]] = set()
    for node in cluster.nodes:
        uses = node_ports(cluster, node)
        for at, use in enumerate(uses):
            if use.last > LAST_PORT:
                yield use.path, f"it reaches port {use.last} on {node}; write a lower port"
            for other in uses[:at]:
                met = max(use.first, other.first)
                if met <= min(use.last, other.last) and (other.path, use.path) not in said:
                    said.add((other.path, use.path))
                    there = f"{other.what} ({dotted(other.path)})"
                    yield use.path, f"port {met} of {node} is used by {there} too; write another port"
