"""Which network a group's ranks use to find each other: variables of HCCL, gloo and vLLM."""

from __future__ import annotations

from ipaddress import IPv4Address

from yrnode.components.host import Host
from yrnode.config import hccl
from yrnode.model.spec import NIC

LOOPBACK = "lo"
GLOO = "GLOO_SOCKET_IFNAME"
INTERFACES = (GLOO, "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


def variables(host: Host, group: str) -> dict[str, str]:
    """For ranks of the group on this node. Left to itself each takes what the host's name resolves to.

    On a loopback address only gloo is told: there are no NPUs behind it. Another address that lives on the loopback
    interface, as with some routers, says nothing of the interface that reaches other nodes: it is left to the host.
    """
    nic = host.nic or NIC
    typed = host.cluster.nodes[host.node].nic
    if IPv4Address(host.address).is_loopback:
        return {GLOO: nic}
    told = () if nic == LOOPBACK and typed is None else INTERFACES
    found = {"HCCL_IF_IP": host.address, **dict.fromkeys(told, nic)}
    base = hccl.derived_base(host.cluster, group)
    # a range that somebody has typed goes over the base port
    said = host.engine_env.keys() & {hccl.PORT_RANGE} or hccl.typed(host.cluster, group, host.node, hccl.PORT_RANGE)
    return found if base is None or said else {**found, hccl.BASE_PORT: str(base)}
