"""What a script types and yrnode works out itself: dropped where both are the same, kept where they differ."""

from collections.abc import Mapping
from typing import Any

from yrnode.config.copying import REMOTE_H2D
from yrnode.config.scripts import values
from yrnode.config.scripts.flags import number_of, place
from yrnode.config.scripts.nodes import Draft
from yrnode.config.scripts.notes import Notes, add
from yrnode.config.scripts.vllm import NICS, Server, is_address

WORKER_PORT = 18481
_WIDER = ("pipeline-parallel-size", "prefill-context-parallel-size")
_EVERYWHERE = "0.0.0.0"  # noqa: S104  what vLLM is told to listen on, by us as by the guides
_OWN = {"enable-server-load-tracking": True, "shutdown-timeout": "10"}


def width(server: Server) -> int:
    """Devices of one rank."""
    count = server.tensor
    for flag in _WIDER:
        value = server.args.get(flag)
        count *= (number_of(value) if not isinstance(value, dict) else None) or 1
    return count


def args_beside(server: Server, here: Draft, head: str, notes: Notes) -> dict[str, Any]:
    """The server's flags without those that yrnode gives it anyway. `head`: the address of rank 0's node."""
    found = {name: value for name, value in server.args.items() if _OWN.get(name) != value}
    host = found.get("host")
    if isinstance(host, str) and (host == (here.address if here.loopback else _EVERYWHERE) or not values.known(host)):
        if not values.known(host):
            why = "vLLM listens on 0.0.0.0, where its node has an address of its own"
            add(notes.dropped, server.file, server.line, f"--host {host}", why)
        del found["host"]
    if server.headless and server.answers and found.get("api-server-count") == "1":
        del found["api-server-count"]
    if is_address(server.head) and server.size > 1 and server.head != (head or server.head):
        found["data-parallel-address"] = server.head
    return found


def env_beside(
    server: Server, here: Draft, datasystem: Mapping[str, Any], devices: bool, notes: Notes
) -> dict[str, str]:
    """The server's variables without those that yrnode gives it anyway.

    `devices`: whether those of the group are known, and so stand in their own key.
    """
    found = dict(server.env)
    stored = server.connectors is not None and server.connectors.store is not None
    derived = {"PYTHONHASHSEED": "0"}
    if stored and datasystem.get("remote_h2d"):
        derived[REMOTE_H2D] = "1"
    nics = NICS[1:2] if here.loopback else NICS
    if here.nic:
        derived |= dict.fromkeys(nics, here.nic)
    for name, value in derived.items():
        if found.get(name) == value:
            del found[name]
    for name in nics:
        if name in found and not values.known(found[name]):
            why = "yrnode finds the interface by the node's address"
            add(notes.dropped, server.file, server.line, f"{name}={found[name]}", why)
            del found[name]
    if "HCCL_IF_IP" in found and not here.loopback and _own(found["HCCL_IF_IP"], here):
        del found["HCCL_IF_IP"]
    host, port = place(found.get("DS_WORKER_ADDR", ""))
    if stored and "DS_WORKER_ADDR" in found and port == datasystem.get("port", WORKER_PORT) and _own(host, here):
        del found["DS_WORKER_ADDR"]
    elif here.address and port is not None and not values.known(host):
        found["DS_WORKER_ADDR"] = f"{here.address}:{port}"
    if devices:
        found.pop("ASCEND_RT_VISIBLE_DEVICES", None)
    logs = "DATASYSTEM_CLIENT_LOG_DIR"
    if stored and found.get(logs, "").startswith("~"):
        why = "in quotes ~ is no home directory; each rank has a folder for it in log_dir"
        add(notes.dropped, server.file, server.line, f"{logs}={found[logs]}", why)
        del found[logs]
    return found


def _own(host: str, here: Draft) -> bool:
    """Whether it is the node's own address, as far as either is known."""
    return host == here.address or not (values.known(host) and here.address)
