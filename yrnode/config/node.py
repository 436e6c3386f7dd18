"""Which node of the cluster this host is, and which network interface has its address."""

import ipaddress
import os
from collections.abc import Mapping

from yrnode.config.cluster import Cluster
from yrnode.config.report import meant
from yrnode.model.errors import UsageError

Interfaces = Mapping[str, tuple[str, ...]]


def interfaces() -> dict[str, tuple[str, ...]]:
    """IPv4 addresses of this host by network interface."""
    import socket

    import psutil

    found: dict[str, tuple[str, ...]] = {}
    for label, entries in psutil.net_if_addrs().items():
        # a second address may have a label, such as eth0:1, that names no interface
        nic = label.partition(":")[0]
        found[nic] = found.get(nic, ()) + tuple(e.address for e in entries if e.family == socket.AF_INET)
    return found


def this_node(
    cluster: Cluster,
    name: str | None = None,
    environ: Mapping[str, str] | None = None,
    host: Interfaces | None = None,
) -> str:
    """The name of this host's node: `--node`, else `YRNODE_NODE`, else the one whose address the host has.

    Raises UsageError that lists the nodes when the name is unknown, or none or several match.
    """
    environ = os.environ if environ is None else environ
    given = name or environ.get("YRNODE_NODE")
    if given:
        if given in cluster.nodes:
            return given
        source = "--node" if name else "YRNODE_NODE"
        raise UsageError(f"{source} {given}: there is no such node; {meant(given, cluster.nodes)}")
    host = interfaces() if host is None else host
    mine = [node for node, value in cluster.nodes.items() if _is_ours(value.address, host)]
    if len(mine) == 1:
        return mine[0]
    known = ", ".join(f"{node} ({value.address})" for node, value in cluster.nodes.items())
    found = "the addresses of several nodes" if mine else "no address of a node"
    raise UsageError(f"this host has {found}; name one with --node or YRNODE_NODE: {known}")


def nic_of(address: str, host: Interfaces | None = None) -> str | None:
    """The network interface that has this address; None when the host has none. All of 127.0.0.0/8 is loopback's."""
    host = interfaces() if host is None else host
    exact = [nic for nic, addresses in host.items() if address in addresses]
    if exact:
        return exact[0]
    loopback = [nic for nic, addresses in host.items() if any(_loopback(other) for other in addresses)]
    return loopback[0] if loopback and _loopback(address) else None


def _is_ours(address: str, host: Interfaces) -> bool:
    return nic_of(address, host) is not None or _loopback(address)


def _loopback(address: str) -> bool:
    return ipaddress.IPv4Address(address).is_loopback
