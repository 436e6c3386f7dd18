"""What follows from the cluster file alone: ranks, ports, devices, addresses and places. Pure."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from yrnode.config.cluster import Api, Cluster
from yrnode.config.group import Group
from yrnode.config.render import node_args
from yrnode.config.router import Router
from yrnode.model.routing import Role, Route

# Flags of vllm serve that multiply a rank's devices beside tensor_parallel.
_WIDER = ("pipeline-parallel-size", "prefill-context-parallel-size")


@dataclass(frozen=True)
class Server:
    """One `vllm serve`: one rank, or with `mode: headless` all ranks of a node."""

    group: str
    node: str
    number: int
    """Its first global rank."""
    count: int
    """How many ranks it holds."""
    local: int
    """Its position among the group's servers on this node."""
    port: int | None
    """Its HTTP port; None for a headless one."""
    devices: tuple[int, ...]
    """NPU ids, in rank order."""

    @property
    def name(self) -> str:
        """The component's name."""
        return f"rank/{self.group}/{self.number}"


@dataclass(frozen=True)
class Places:
    """Directories of one node."""

    state_dir: Path
    run_dir: Path
    log_dir: Path
    etcd_data_dir: Path


def data_parallel_size(group: Group) -> int:
    """Ranks of the group on all nodes."""
    return sum(group.ranks.values())


def group_nodes(group: Group) -> tuple[str, ...]:
    """The nodes that run a rank of it, in rank order."""
    return tuple(node for node, count in group.ranks.items() if count)


def first_rank(group: Group, node: str) -> int:
    """The global number of a node's first rank."""
    before = 0
    for name, count in group.ranks.items():
        if name == node:
            return before
        before += count
    raise KeyError(node)


def head_node(group: Group) -> str:
    """The node of rank 0, which the others meet."""
    return group_nodes(group)[0]


def head_address(cluster: Cluster, group: Group) -> str:
    """The address of rank 0's node."""
    return cluster.nodes[head_node(group)].address


def devices_per_rank(group: Group) -> int:
    """NPUs of one rank: tensor_parallel, times pipeline and prefill-context parallel where `args` set them."""
    count = group.tensor_parallel
    for flag in _WIDER:
        value = str(group.args.get(flag, "1"))
        count *= int(value) if value.isdecimal() and int(value) else 1
    return count


def node_devices(group: Group, node: str) -> tuple[int, ...]:
    """NPU ids of the group on a node, in rank order."""
    return group.devices.get(node) or tuple(range(group.ranks.get(node, 0) * devices_per_rank(group)))


def servers(name: str, group: Group, node: str | None = None) -> tuple[Server, ...]:
    """Every `vllm serve` of the group, or those of one node, in rank order."""
    out: list[Server] = []
    for where in group_nodes(group):
        if node not in (None, where):
            continue
        count, first, devices = group.ranks[where], first_rank(group, where), node_devices(group, where)
        if group.mode == "headless":
            port = group.port if where == head_node(group) else None
            out.append(Server(name, where, first, count, 0, port, devices))
            continue
        width = devices_per_rank(group)
        for at in range(count):
            part = devices[at * width : (at + 1) * width]
            out.append(Server(name, where, first + at, 1, at, group.port + at, part))
    return tuple(out)


def node_servers(cluster: Cluster, node: str) -> tuple[Server, ...]:
    """Every `vllm serve` on a node, group by group."""
    return tuple(server for name, group in cluster.groups.items() for server in servers(name, group, node))


def etcd_nodes(cluster: Cluster) -> tuple[str, ...]:
    """The nodes that run etcd; none when it is external."""
    if cluster.etcd.external:
        return ()
    return cluster.etcd.nodes or (next(iter(cluster.nodes)),)


def etcd_clients(cluster: Cluster) -> dict[str, str]:
    """The client URL of each node's etcd."""
    return _etcd_urls(cluster, cluster.etcd.client_port)


def etcd_peers(cluster: Cluster) -> dict[str, str]:
    """The peer URL of each node's etcd."""
    return _etcd_urls(cluster, cluster.etcd.peer_port)


def _etcd_urls(cluster: Cluster, port: int) -> dict[str, str]:
    scheme = "https" if cluster.etcd.tls else "http"
    return {n: f"{scheme}://{cluster.nodes[n].address}:{port}" for n in etcd_nodes(cluster)}


def etcd_endpoints(cluster: Cluster) -> tuple[str, ...]:
    """Client URLs of etcd."""
    return cluster.etcd.external or tuple(etcd_clients(cluster).values())


def etcdctl(cluster: Cluster) -> str:
    """How an operator's command to etcd begins, for a shell. With users it asks for root's password."""
    tls, words = cluster.etcd.tls, [f"--endpoints={','.join(etcd_endpoints(cluster))}"]
    if tls is not None:
        files = {"cacert": tls.ca, "cert": tls.cert, "key": tls.key}
        words += [f"--{flag}={path}" for flag, path in files.items() if path]
    if cluster.etcd.auth is not None:
        words.append("--user=root")
    return shlex.join(["etcdctl", *words])


def worker_address(cluster: Cluster, node: str) -> str:
    """`address:port` of a node's datasystem worker."""
    return f"{cluster.nodes[node].address}:{cluster.datasystem.port}"


def router_groups(cluster: Cluster) -> tuple[str, ...]:
    """The groups behind the router: prefill and decode, or the one that is not split; none without a router."""
    router = cluster.router
    if router is None:
        return ()
    named = tuple(name for name in (router.prefill, router.decode, router.group) if name)
    return named or tuple(cluster.groups)[:1]


def router_health(router: Router) -> str:
    """The path of the router's health URL."""
    return router.health or ("/healthcheck" if router.kind == "ascend-proxy" else "/health")


def server_url(cluster: Cluster, server: Server) -> str:
    """Where a server with a port of its own is reached."""
    args = node_args(cluster.groups[server.group], server.node)
    args = {flag: value for flag, value in args.items() if value is not False}
    scheme = "https" if "ssl-certfile" in args else "http"
    return f"{scheme}://{cluster.nodes[server.node].address}:{server.port}{args.get('root-path', '')}"


def routes(cluster: Cluster) -> tuple[Route, ...]:
    """Every server behind the router, group by group in rank order. A headless one has no port: its head answers."""
    router = cluster.router
    found: list[Route] = []
    for name in router_groups(cluster):
        role = Role.REGULAR
        if router is not None and router.prefill:
            role = Role.PREFILL if name == router.prefill else Role.DECODE
        found += group_routes(cluster, name, role)
    return tuple(found)


def group_routes(cluster: Cluster, name: str, role: Role = Role.REGULAR) -> tuple[Route, ...]:
    """Every server of a group that has a port of its own, in rank order."""
    group = cluster.groups[name]
    here = [s for s in servers(name, group) if s.port is not None]
    return tuple(Route(s.name, name, s.node, role, server_url(cluster, s), group_nodes(group)) for s in here)


def router_url(cluster: Cluster) -> str:
    """Where the router is reached; empty without one."""
    router = cluster.router
    return f"http://{cluster.nodes[router.node].address}:{router.port}" if router is not None else ""


def api_of(cluster: Cluster, node: str) -> Api:
    """Where a node's HTTP interface listens."""
    return cluster.nodes[node].api or cluster.api


def places(cluster: Cluster, node: str) -> Places:
    """A node's directories: its own where the file gives them, else the cluster's."""
    own = cluster.nodes[node]
    state = own.state_dir or cluster.state_dir
    return Places(
        state, own.run_dir or cluster.run_dir, own.log_dir or cluster.log_dir, cluster.etcd.data_dir or state / "etcd"
    )
