"""Servers of one group → its entry in the cluster file."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from yrnode.config.scripts import values
from yrnode.config.scripts.derived import args_beside, env_beside, width
from yrnode.config.scripts.flags import words_of
from yrnode.config.scripts.nodes import Nodes
from yrnode.config.scripts.notes import Notes, add
from yrnode.config.scripts.vllm import Server

V = TypeVar("V")
Table = dict[str, Any]

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_RESERVED = ("YRNODE_", "ETCD_", "ETCDCTL_")
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD", "TMPDIR", "LANG")
"""Variables that a rank has from yrnode's own environment, so that `${NAME}` stands for something."""
_READY = "VLLM_ENGINE_READY_TIMEOUT_S"
_START_S = 1800


def sorted_groups(servers: Sequence[Server], notes: Notes) -> list[list[Server]]:
    """Servers by group: those that meet at one address and port. Prefill groups first, each in rank order."""
    found: dict[str, list[Server]] = {}
    for at, server in enumerate(servers):
        meets = f"{server.head} {server.rpc_port} {server.size} {server.role}" if server.size > 1 else f"alone {at}"
        same = found.setdefault(server.template or meets, [])
        if any(other.first == server.first for other in same):
            text = f"rank {server.first}"
            why = "another script starts the same rank of the same group; this one is left out"
            add(notes.not_read, server.file, server.line, text, why)
            continue
        same.append(server)
    order = ("producer", "consumer", "both")
    groups = sorted(found.values(), key=lambda group: order.index(group[0].role))
    return [sorted(group, key=lambda server: server.first) for group in groups]


def entry(servers: Sequence[Server], nodes: Nodes, datasystem: Table, notes: Notes) -> Table:
    """One entry of `groups`, without `peer`. `datasystem`: as the cluster file will have it."""
    head = servers[0]
    here = list(dict.fromkeys(nodes.of(server).name for server in servers))
    ranks = {name: sum(s.count for s in servers if nodes.of(s).name == name) for name in here}
    _complete(servers, notes)
    found: Table = {"ranks": ranks, "tensor_parallel": head.tensor}
    devices = _devices(servers, nodes)
    if devices:
        found["devices"] = devices
    if head.headless:
        found["mode"] = "headless"
    if head.role != "both":
        found["role"] = head.role
    port = _port(servers, nodes, notes)
    if port:
        found["port"] = port
    if head.size > 1 and head.rpc_port:
        found["rpc_port"] = head.rpc_port
    if head.model.startswith("."):
        why = "it began where the script was run; here it begins at the cluster file"
        add(notes.open, head.file, head.line, head.model, why)
    found["model"] = _text(head, "the model", head.model or "unknown", notes)
    args = [args_beside(server, nodes.of(server), nodes.of(head).address, notes) for server in servers]
    env = [env_beside(server, nodes.of(server), datasystem, devices is not None, notes) for server in servers]
    common_args, own_args = _spread(servers, nodes, args, "--", notes)
    common_env, own_env = _spread(servers, nodes, env, "", notes)
    found["args"] = {k: _arg(head, k, v, notes) for k, v in common_args.items()}
    found["env"] = _env(head, common_env, notes)
    found["unset"] = _unset(servers, env, notes)
    found |= _connectors(servers, notes)
    ready = common_env.get(_READY, "")
    if ready.isdecimal() and len(ready) < 7 and int(ready) > _START_S:
        found["start_timeout"] = f"{ready}s"
    own = {}
    for name in here:
        server = next(s for s in servers if nodes.of(s).name == name)
        part = {
            "args": {k: _arg(server, k, v, notes) for k, v in own_args.get(name, {}).items()},
            "env": _env(server, own_env.get(name, {}), notes),
        }
        own[name] = {key: value for key, value in part.items() if value}
    found["nodes"] = {name: part for name, part in own.items() if part}
    return {key: value for key, value in found.items() if value or key == "tensor_parallel"}


def _complete(servers: Sequence[Server], notes: Notes) -> None:
    """Tell what the servers of a group do not agree on, and ranks that nobody starts."""
    head, next_rank = servers[0], 0
    for server in servers:
        if server.first != next_rank:
            text = f"rank {next_rank} of {head.size}"
            add(notes.open, server.file, server.line, text, "no script among the files starts it")
        next_rank = server.first + server.count
        for what, one, other in (
            ("--tensor-parallel-size", head.tensor, server.tensor),
            ("the model", head.model, server.model),
            ("--headless", head.headless, server.headless),
            ("the KV connectors' configuration", _same_kv(head), _same_kv(server)),
        ):
            if one != other:
                why = f"it is another one in {head.file}:{head.line}; the group has one, and takes that"
                text = f"{what} {other}" if what.startswith("--tensor") else what
                add(notes.not_read, server.file, server.line, text, why)
    if next_rank != head.size:
        text = f"ranks {next_rank} to {head.size - 1} of {head.size}"
        add(notes.open, servers[-1].file, servers[-1].line, text, "no script among the files starts them")


def _same_kv(server: Server) -> Any:
    own = server.connectors
    return own and (own.role, own.store, own.transfer)


def _devices(servers: Sequence[Server], nodes: Nodes) -> dict[str, list[int]] | None:
    """Device lists where they are not 0, 1, … in rank order. None where they do not fit the ranks."""
    found: dict[str, list[int]] = {}
    for server in servers:
        found.setdefault(nodes.of(server).name, []).extend(server.devices)
    needed = {name: 0 for name in found}
    for server in servers:
        needed[nodes.of(server).name] += server.count * width(server)
    if any(len(found[name]) != needed[name] for name in found):
        return None
    return {name: ids for name, ids in found.items() if ids != list(range(needed[name]))}


def _port(servers: Sequence[Server], nodes: Nodes, notes: Notes) -> int | None:
    """The port of each node's first rank."""
    port = None
    local: dict[str, int] = {}
    for server in servers:
        if not server.answers:
            continue
        name = nodes.of(server).name
        at = local[name] = local.get(name, -1) + 1
        if server.port is None:
            add(notes.open, server.file, server.line, "--port", "it is not known; vLLM's port is 8000, yrnode's 6600")
            continue
        port = server.port - at if port is None else port
        if server.port != port + at:
            text = f"--port {server.port}"
            why = f"it is {port + at} here: {port} for a node's first rank, on all nodes of the group"
            add(notes.open, server.file, server.line, text, why)
    return port


def _spread(
    servers: Sequence[Server], nodes: Nodes, tables: Sequence[Mapping[str, V]], dashes: str, notes: Notes
) -> tuple[dict[str, V], dict[str, dict[str, V]]]:
    """What all servers have, and what differs by node. What differs on one node has no place."""
    common = {k: v for k, v in tables[0].items() if all(k in t and t[k] == v for t in tables)}
    own: dict[str, dict[str, V]] = {}
    for server, table in zip(servers, tables, strict=True):
        name = nodes.of(server).name
        first = name not in own
        here = own.setdefault(name, {})
        for key in {**table, **here}:
            if key in common or (first and here.setdefault(key, table[key]) == table[key]):
                continue
            if here.get(key) != table.get(key):
                why = f"it differs between the ranks of {name}, and the cluster file has one for all of them"
                add(notes.not_read, server.file, server.line, f"{dashes}{key}", why)
    return common, {name: table for name, table in own.items() if table}


def _arg(server: Server, name: str, value: Any, notes: Notes) -> Any:
    """A flag's value for the cluster file, where nothing is expanded."""
    if isinstance(value, bool | dict):
        return value
    texts = [_text(server, f"--{name}", word, notes) for word in words_of(value)]
    return texts if isinstance(value, tuple) else texts[0]


def _text(server: Server, what: str, value: str, notes: Notes) -> str:
    if not values.known(value):
        add(notes.open, server.file, server.line, f"{what} {value}", "it is not known; write it into the file")
    return values.shown(value)


def _env(server: Server, env: Mapping[str, str], notes: Notes) -> dict[str, str]:
    """Variables as the cluster file takes them: `${NAME}` stands for what NAME was before."""
    found: dict[str, str] = {}
    for name, value in env.items():
        text = f"{name}={value}"
        if name.startswith(_RESERVED):
            why = f"{name.partition('_')[0]}_… is yrnode's own to set, or would be taken for etcd's flags"
            add(notes.dropped, server.file, server.line, text, why)
        elif _VARIABLE.search(value):
            why = "bash leaves ${…} in single quotes as it is, and the cluster file would put a value there"
            add(notes.not_read, server.file, server.line, text, why)
        else:
            if not values.only_variables(value):
                add(notes.open, server.file, server.line, text, "it is not known; write it into the file")
            for other in values.unknown_variables(value):
                if other not in (*KEPT, name, *found):
                    why = f"{other} is not set by the script, and not passed on by yrnode; write it into env"
                    add(notes.open, server.file, server.line, text, why)
            found[name] = values.shown(value)
    return found


def _unset(servers: Sequence[Server], env: Sequence[Mapping[str, str]], notes: Notes) -> list[str]:
    found = list(dict.fromkeys(name for server in servers for name in server.unset))
    for server in servers:
        for name in found:
            if any(name in table for table in env):
                add(notes.not_read, server.file, server.line, f"unset {name}", "other ranks of the group set it")
    return [name for name in found if not any(name in table for table in env)]


def _connectors(servers: Sequence[Server], notes: Notes) -> Table:
    own = servers[0].connectors
    if own is None:
        return {}
    for server in servers:
        port = server.connectors.lookup_port if server.connectors else ""
        if port and port != str(server.first):
            text = f'"lookup_rpc_port": "{port}"'
            why = f"each rank has its number, such as {server.first}: no two on a node can be the same"
            add(notes.dropped, server.file, server.line, text, why)
            break
    found: Table = {}
    if own.transfer is not None:
        found["mooncake"] = own.transfer
    if own.store is not None:
        found["ascend_store"] = own.store
    return {"kv_connector": found}


def check_sizes(groups: Sequence[Sequence[Server]], notes: Notes) -> None:
    """Mooncake's sizes, which yrnode takes from the groups themselves."""
    ends = {role: [g[0] for g in groups if g[0].role == role] for role in ("producer", "consumer")}
    for group in groups:
        own = group[0].connectors
        if own is None or own.transfer is None:
            continue
        for role, typed in zip(("producer", "consumer"), own.sizes, strict=True):
            real = [{"dp_size": s.size, "tp_size": s.tensor} for s in ends[role]]
            if typed not in real:
                text = f"Mooncake's sizes of the {role}: {typed}"
                why = "they are not those of the group by these files, which yrnode tells it"
                add(notes.open, group[0].file, group[0].line, text, why)
