"""Fixed ports outside the range of which the kernel gives some to clients: one of those may be taken at any time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from yrnode.config.ports import PortUse, node_ports
from yrnode.preflight.finding import Finding, Look, good, not_here, warning

NAME = "port range"
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_RESERVED = "/proc/sys/net/ipv4/ip_local_reserved_ports"


def look(at: Look) -> list[Finding]:
    bounds = at.read(_RANGE).split()
    if len(bounds) != 2:
        return [not_here(NAME, f"{_RANGE} cannot be read")]
    low, high = int(bounds[0]), int(bounds[1])
    return [judge(node_ports(at.host.cluster, at.host.node), low, high, at.read(_RESERVED))]


def judge(uses: Iterable[PortUse], low: int, high: int, reserved: str) -> Finding:
    """`reserved`: as the kernel writes it, such as `2379-2380,6600`."""
    kept = spans(reserved)
    inside = {
        (text(ports), use.what): ports
        for use in uses
        if (
            ports := [
                port
                for port in range(max(low, use.first), min(high, use.last) + 1)
                if not any(first <= port <= last for first, last in kept)
            ]
        )
    }
    if not inside:
        return good(NAME, f"no port of the file that is not reserved lies in {low}-{high}")
    words = ", ".join(f"{ports} ({what})" for ports, what in sorted(inside, key=lambda one: inside[one]))
    wanted = sorted({port for ports in inside.values() for port in ports})
    both = ",".join(filter(None, (reserved.strip(), text(wanted))))
    cure = f"sysctl -w net.ipv4.ip_local_reserved_ports={both}, or write other ports"
    return warning(NAME, f"in {low}-{high}: {words}", "ports that no client is given", cure)


def spans(reserved: str) -> list[tuple[int, int]]:
    """First and last of each part."""
    parts = [part.partition("-") for part in reserved.strip().split(",") if part.strip()]
    return [(int(first), int(last or first)) for first, _, last in parts]


def text(ports: Sequence[int]) -> str:
    """Sorted ports as the kernel takes them: 5, 6, 7, 9 → `5-7,9`."""
    found: list[list[int]] = []
    for port in ports:
        if found and found[-1][1] == port - 1:
            found[-1][1] = port
        else:
            found.append([port, port])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)
