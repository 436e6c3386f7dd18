"""`vllm serve` in a script → one server: what it serves, which ranks, where, and with what."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yrnode.config.scripts import kv, values
from yrnode.config.scripts.bash import Command, Script
from yrnode.config.scripts.flags import Flags, Value, flags, number_of, place, text_of, words_of
from yrnode.config.scripts.notes import Notes, add

SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend",
    "-q": "--quantization",
}
OWN_ADDRESS = ("HCCL_IF_IP", "DS_WORKER_ADDR", "VLLM_HOST_IP")
OWN_NAMES = ("local_ip", "LOCAL_IP", "HOST_IP", "host_ip", "NODE_IP", "node_ip")
"""Variables that hold the node's own address, in the guides' scripts."""
NICS = ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


@dataclass
class Server:
    """One `vllm serve`."""

    file: str
    line: int
    program: str
    model: str
    args: dict[str, Value | dict[str, Any]]
    """Flags that have no key of their own; JSON as a mapping."""
    env: dict[str, str]
    unset: tuple[str, ...]
    sourced: tuple[str, ...]
    size: int = 1
    """Ranks of its group."""
    first: int = 0
    """Its first rank."""
    count: int = 1
    headless: bool = False
    """Whether its group has one server that balances, and the others headless."""
    answers: bool = True
    """Whether it has a port."""
    port: int | None = None
    tensor: int = 1
    head: str = ""
    """Address of rank 0; empty where none is said."""
    rpc_port: int | None = None
    connectors: kv.Connectors | None = None
    role: str = "both"
    address: str = ""
    """Its node's address; empty where it is not known."""
    nic: str = ""
    devices: tuple[int, ...] = ()
    node: str = ""
    """Where its node is named: servers of one line of server.sh are on one node."""
    template: str = ""
    """For a rank of run_dp_template.sh, the group that it belongs to."""
    candidates: list[str] = field(default_factory=list)


def is_serve(words: list[str]) -> bool:
    """Whether a command is `vllm serve`."""
    return len(words) > 1 and os.path.basename(words[0]) == "vllm" and words[1] == "serve"


def server(
    script: Script, command: Command, words: list[str], notes: Notes, positions: Mapping[str, str] | None = None
) -> Server:
    """The server that a command starts. `positions`: what `$1`, `$2` … stand for."""
    given = positions or {}
    words = [_long(values.fill(word, given)) for word in words]
    line, file = command.line, script.file
    before, found, odd = flags(words[2:], SHORT)
    for word in odd:
        add(notes.not_read, file, line, word, "it is given twice, or stands where no value is expected")
    model = text_of(found.pop("model", None)) or (before[0] if before else "")
    for word in before[1:]:
        add(notes.not_read, file, line, word, "there are several models")
    env = {name: values.fill(value, given) for name, value in command.env.items()}
    sourced = tuple(path for at, path in script.sourced if at < line)
    out = Server(file, line, words[0], model, {}, env, command.unset, sourced)
    _parallel(out, found, notes)
    out.connectors = _connectors(out, found)
    out.candidates = _addresses(script, env, found)
    out.address = next(iter(out.candidates), "")
    out.nic = next((env[name] for name in NICS if values.known(env.get(name, values.OPEN))), "")
    devices = env.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",")
    if all(device.strip().isdecimal() and len(device) < 6 for device in devices):
        out.devices = tuple(int(device) for device in devices)
    out.args = {name: _arg(value) for name, value in found.items()}
    return out


def _long(word: str) -> str:
    """`--max_model_len` as vLLM prints it."""
    name, equals, value = word.partition("=")
    head, dot, rest = name.partition(".")
    return head.replace("_", "-") + dot + rest + equals + value if word.startswith("--") else word


def _parallel(out: Server, found: Flags, notes: Notes) -> None:
    """Takes out of the flags what the cluster file has keys for."""

    def number(name: str) -> int | None:
        value = found.get(name)
        taken = number_of(value)
        if value is not None and taken is None:
            text = f"--{name} {' '.join(words_of(value))}"
            add(notes.open, out.file, out.line, text, "it is no number that is known; its default is taken")
        found.pop(name, None)
        return taken

    size, rank, start = number("data-parallel-size"), number("data-parallel-rank"), number("data-parallel-start-rank")
    local, out.port, out.rpc_port = (
        number("data-parallel-size-local"),
        number("port"),
        number("data-parallel-rpc-port"),
    )
    out.tensor, out.size = number("tensor-parallel-size") or 1, size or 1
    out.head = text_of(found.pop("data-parallel-address", None)) or ""
    out.answers = found.pop("headless", None) is None
    out.first = rank if rank is not None else start or 0
    out.headless = rank is None and out.size > 1
    if out.headless:
        # without a local size all ranks are on this node
        out.count = max(1, out.size if local is None else local)
    if not out.answers:
        for name in ("host", "port"):
            found.pop(name, None)
        if out.port is not None:
            add(notes.dropped, out.file, out.line, f"--port {out.port}", "a headless server has no port")
        out.port = None


def _connectors(out: Server, found: Flags) -> kv.Connectors | None:
    text = text_of(found.get("kv-transfer-config"))
    config = kv.mapping(values.shown(text)) if text is not None else None
    if text is None or config is None:
        return None
    # a template's parameters are not known yet, but its role is
    read = kv.connectors(config) if values.known(text) else None
    out.role = kv.role_of(config) or "both"
    if read is not None:
        found.pop("kv-transfer-config")
    return read


def _addresses(script: Script, env: Mapping[str, str], found: Flags) -> list[str]:
    """Addresses of this node by the script, the surest first."""
    told = [env.get(name, "") for name in OWN_ADDRESS] + [script.variables.get(name, "") for name in OWN_NAMES]
    hosts = [place(value)[0] if ":" in value else value for value in told]
    hosts.append(text_of(found.get("host")) or "")
    return list(dict.fromkeys(host for host in hosts if is_address(host)))


def is_address(text: str) -> bool:
    """Whether it is an IPv4 address of a host."""
    import ipaddress

    try:
        found = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return not (found.is_unspecified or found.is_multicast or text == "255.255.255.255")


def _arg(value: Value) -> Value | dict[str, Any]:
    if isinstance(value, str) and values.known(value) and value.lstrip().startswith("{"):
        return kv.mapping(value) or value
    return value
