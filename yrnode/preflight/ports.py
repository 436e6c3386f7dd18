"""The ports of this node's components are free, or held by what an earlier yrnode of this node left."""

from __future__ import annotations

import errno
import os

from yrnode.components.host import Host
from yrnode.model.spec import ComponentSpec, PortNeed
from yrnode.process import table
from yrnode.process.launch import Owner
from yrnode.residue import inventory, ports


def problems(host: Host, specs: list[ComponentSpec]) -> list[str]:
    found = []
    for spec in specs:
        for need in spec.ports:
            taken = ports.why_taken(need.host, need.port)
            if taken and not _ours(host, specs, need):
                where = f"port {need.host}:{need.port} ({need.purpose})"
                if taken.startswith("in use"):
                    found.append(f"{where} is {taken}; end it, or change {need.purpose}")
                elif taken == os.strerror(errno.EADDRNOTAVAIL):
                    key = f"nodes.{host.node}.address"
                    found.append(
                        f"{key}: this host has no address {need.host}; correct it, or name the node with --node"
                    )
                else:
                    found.append(f"{where}: {taken}; change {need.purpose}")
    # an address is missing once, not at each of its ports
    return list(dict.fromkeys(found))


def _ours(host: Host, specs: list[ComponentSpec], need: PortNeed) -> bool:
    """Whether the listener carries this node's mark: the clean-up before the start will end it."""
    pid = ports.listener(need.host, need.port)
    if pid is None:
        return False
    mark, home = table.marks(pid)
    if mark.startswith(f"{host.cluster.cluster}/{host.node}/") and home == str(host.places.state_dir):
        return True
    # one whose title has erased its environment is known by its record
    owner = Owner(f"{host.cluster.cluster}/{host.node}", host.places.state_dir, host.places.run_dir)
    return any(p.pid == pid for p in inventory.recorded(inventory.Scope(owner, tuple(specs), False)))
