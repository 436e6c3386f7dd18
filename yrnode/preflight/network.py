"""The node's network interface exists, is up and has the node's address, and ranks are told of no other one."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from yrnode.config.node import Interfaces, interfaces, nic_of
from yrnode.model.spec import NIC
from yrnode.preflight.finding import Finding, Look, blocker, good, refusal, warning

NAME = "network interface"
INTERFACE = ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
ADDRESS = ("HCCL_IF_IP", "VLLM_HOST_IP")


def look(at: Look) -> list[Finding]:
    node = at.host.cluster.nodes[at.host.node]
    here = interfaces()
    up = frozenset(name for name, state in psutil.net_if_stats().items() if state.isup)
    envs = {spec.name: spec.env for spec in at.specs if spec.kind == "rank"}
    return [judge(at.host.node, node.address, node.nic, here, up), *told(envs, here)]


def judge(node: str, address: str, nic: str | None, here: Interfaces, up: frozenset[str]) -> Finding:
    """`nic`: what the file says, if anything. That an address is missing is said with the ports."""
    own = nic_of(address, here)
    if nic is not None and nic not in here:
        known = ", ".join(sorted(here))
        return refusal(NAME, f"there is no {nic}", f"one of {known}", f"correct nodes.{node}.nic, or remove it")
    if nic is not None and address not in here[nic] and own is not None and own != nic:
        cure = f"correct nodes.{node}.nic or nodes.{node}.address"
        # where two interfaces reach each other it may work all the same
        return blocker(NAME, f"{address} is on {own}", f"{address} on {nic}", cure)
    name = nic or own
    if name is None:
        return warning(NAME, f"no interface has {address}", address, f"correct nodes.{node}.address")
    if name not in up:
        return warning(NAME, f"{name} is down", f"{name} up", f"ip link set {name} up")
    return good(NAME, f"{name} with {address}")


def told(envs: Mapping[str, Mapping[str, str]], here: Interfaces) -> list[Finding]:
    """A variable of a rank that names an interface or an address which this host does not have."""
    addresses = {a for found in here.values() for a in found}
    wrong: dict[str, list[str]] = {}
    for rank, env in envs.items():
        for name in INTERFACE:
            value = env.get(name, "")
            # several, or what is not to be used, is not judged; HCCL takes a prefix too
            if (
                value not in ("", NIC)
                and not set(value) & set(",=^:")
                and not any(other.startswith(value) for other in here)
            ):
                wrong.setdefault(f"{name} is {value}", []).append(rank)
        for name in ADDRESS:
            if (value := env.get(name, "")) and value not in addresses and not value.startswith("127."):
                wrong.setdefault(f"{name} is {value}", []).append(rank)
    return [
        refusal(
            NAME,
            f"{what}, which this host does not have, for {', '.join(ranks)}",
            "an interface or address of this host",
            "correct it in env",
        )
        for what, ranks in wrong.items()
    ]
