"""vLLM ranks of this node: `vllm serve` for each, how they prove themselves, and how their death reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from yrnode.checks.completion import WORDS
from yrnode.components import client, environment, kv_connectors, network, proxies, strays
from yrnode.components.checks import tuned
from yrnode.components.host import Host
from yrnode.config.fields import json_text
from yrnode.config.group import Group
from yrnode.config.layout import (
    Server,
    data_parallel_size,
    group_nodes,
    head_address,
    head_node,
    server_url,
    servers,
)
from yrnode.config.render import args_list, node_args, node_env
from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import short
from yrnode.model.spec import RPC_PORT, CheckSpec, ComponentSpec, PortNeed
from yrnode.model.state import Plane
from yrnode.policy.connector import reads, reads_external
from yrnode.process.exit import Exit

if TYPE_CHECKING:
    from yrnode.checks.functional import RankTarget

SHUTDOWN_TIMEOUT_S = 10
HASH_SEED = "0"
"""Of every rank, so that all of them name a block alike."""
STALL_TIMEOUT_S = 180.0
"""An engine that burns CPU and makes no progress may be compiling for so long."""
_LOADING = re.compile(r"([Ll]oading [\w ]{3,60}): {1,3}(\d{1,3})% Completed \| (\d+)/(\d+) ")
"""A line of the bar that vLLM's loaders draw, each on a line of its own."""
_LOADED = "Loading weights took"


def specs(host: Host) -> list[ComponentSpec]:
    return [
        _rank(host, server, group)
        for name, group in host.cluster.groups.items()
        for server in servers(name, group, host.node)
    ]


def _rank(host: Host, server: Server, group: Group) -> ComponentSpec:
    cluster = host.cluster
    name = server.name
    bin_argv = environment.find_program(cluster.bin.vllm, host.engine_env)
    args = {**_derived(host, server, group), **node_args(group, host.node)}
    if server.port is None:
        # the group's word for it is about the head; vllm refuses it beside --headless
        args.pop("api-server-count", None)
    words = [*bin_argv, "serve", group.model, *args_list(args)]
    # false drops a flag: nothing follows from it
    args = {flag: value for flag, value in args.items() if value is not False}
    directory, run_dir = host.dir(name), host.run_dir(name)
    env = {
        **network.variables(host, server.group),
        **host.engine_env,
        "PYTHONHASHSEED": HASH_SEED,
        "ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, server.devices)),
        "VLLM_RPC_BASE_PATH": str(run_dir),
        # vLLM's process titles would else erase the environment, and with it our mark
        "SPT_NOENV": "1",
    }
    stored = group.kv_connector.ascend_store is not None
    if stored:
        env |= client.variables(host, name)
    env = environment.expand(node_env(cluster, group, host.node), environment.with_program(env, bin_argv))
    env = proxies.direct(cluster, env)
    for gone in group.unset:
        env.pop(gone, None)
    strays.refuse_service_link(host, server.group, env)
    # a headless server has no port: the head answers for it
    url = server_url(cluster, server if server.port is not None else servers(server.group, group)[0])
    return ComponentSpec(
        name,
        "rank",
        Plane.ENGINE,
        tuple(words),
        env,
        directory,
        host.log(name),
        group=server.group,
        rank=server.number,
        unset=group.unset,
        start_timeout_s=group.start_timeout,
        stop_grace_s=_shutdown_timeout(args) + 10.0,
        checks=tuned(cluster, "rank", _checks(host, server, group, url, args, env)),
        ports=_ports(host, server, group, args),
        dirs=(run_dir,),
        stale=(run_dir,),
        files=client.files(host, name, env) if stored else {},
        url=url,
    )


def _ports(host: Host, server: Server, group: Group, args: Mapping[str, Any]) -> tuple[PortNeed, ...]:
    if server.port is None:
        return ()
    http = PortNeed(str(args.get("host", host.address)), server.port, f"groups.{server.group}.port")
    if group.rpc_port is None or server.number or data_parallel_size(group) == 1:
        return (http,)
    # rank 0 listens on it while the group starts
    return http, PortNeed(host.address, group.rpc_port, f"groups.{server.group}.rpc_port")


def _derived(host: Host, server: Server, group: Group) -> dict[str, Any]:
    """Flags that follow from the file; what a user wrote in `args` goes over them."""
    flags = {**_http(host, server), **_data_parallel(host, server, group)}
    flags |= {"tensor-parallel-size": str(group.tensor_parallel), "shutdown-timeout": str(SHUTDOWN_TIMEOUT_S)}
    transfer = kv_connectors.transfer_config(host.cluster, group, server.number)
    if transfer is not None:
        flags["kv-transfer-config"] = json_text(transfer)
    return flags


def _http(host: Host, server: Server) -> dict[str, Any]:
    if server.port is None:
        return {"headless": True}
    loopback = host.address.startswith("127.")
    return {
        # several nodes of one host share the port, each on its own loopback address
        "host": host.address if loopback else "0.0.0.0",  # noqa: S104  as in the deployment guides
        "port": str(server.port),
        "enable-server-load-tracking": True,
    }


def _data_parallel(host: Host, server: Server, group: Group) -> dict[str, Any]:
    size = data_parallel_size(group)
    if size == 1:
        return {}
    flags: dict[str, Any] = {"data-parallel-size": str(size)}
    if group.mode == "external":
        flags["data-parallel-rank"] = str(server.number)
    else:
        flags["data-parallel-size-local"] = str(server.count)
        flags |= (
            {"data-parallel-start-rank": str(server.number)} if server.port is None else {"api-server-count": "1"}
        )
    flags["data-parallel-address"] = head_address(host.cluster, group)
    flags["data-parallel-rpc-port"] = str(group.rpc_port) if group.rpc_port else RPC_PORT
    return flags


def _checks(
    host: Host, server: Server, group: Group, url: str, args: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[CheckSpec, ...]:
    headless = server.port is None
    model, key = asked(host, group) if headless else (served_name(group, args), api_key(args, env))
    asks: dict[str, Any] = {"url": url, "model": model, "key": key, "group": server.group}
    ranks = engines(server, group)
    # several API servers count their requests each for itself; a head without the flag has one for each rank
    alone_it_counts = str(args.get("api-server-count", 0 if ranks else 1)) == "1"
    load = "enable-server-load-tracking" in args and alone_it_counts
    told = {"url": url, "load": load, "stall_timeout_s": STALL_TIMEOUT_S}
    # every rank of a group waits for the slowest, wherever that is
    alone = {"alone": data_parallel_size(group) == 1 or set(group_nodes(group)) == {host.node}}
    # a headless server asks its head for its own engines: at the start, and when one of them is seen to be stopped
    asks |= {"idle": not headless}
    if ranks:
        asks |= {"ranks": ranks}
        told |= {"ranks": ranks}
    health = CheckSpec(
        "health", "http", 5.0, 5.0, failures=3, gate=True, watch=not headless, params={"url": f"{url}/health"}
    )
    processes = (
        CheckSpec("process", "process", 1.0, 1.0, witness=True, local=True),
        CheckSpec("processes", "process-set", 0.5, 1.0, failures=1, local=True, after=("canary",)),
        health,
        CheckSpec(
            "engine", "engine", 1.0, 1.0, failures=1, witness=True, local=True, after=("canary",), params=alone
        ),
    )
    progress = CheckSpec("progress", "progress", 2.0, 5.0, failures=1, witness=True, after=("canary",), params=told)
    canary = CheckSpec(
        "canary", "canary", 30.0, 10.0, failures=2, gate=True, witness=True, after=("health",), params=asks
    )
    if headless:
        return (*processes, canary)
    return (*processes, progress, canary, *_cache_checks(args, asks))


def engines(server: Server, group: Group) -> tuple[int, ...]:
    """The ranks that are asked for by name behind a head: all by the head, its own by a headless server."""
    if group.mode == "external" or data_parallel_size(group) == 1:
        return ()
    first, count = (0, data_parallel_size(group)) if server.port is not None else (server.number, server.count)
    return tuple(range(first, first + count))


def _cache_checks(args: Mapping[str, Any], asks: Mapping[str, Any]) -> tuple[CheckSpec, ...]:
    """A rank that reads an external cache is also asked for what that holds: a short prompt retrieves nothing."""
    if "kv-transfer-config" not in args:
        return ()
    config = args["kv-transfer-config"]
    if not reads(json_text(config) if isinstance(config, Mapping) else str(config)):
        return ()
    params = {**asks, "words": long_words(args)}
    return (
        CheckSpec(
            "cache",
            "retrieval",
            30.0,
            10.0,
            failures=2,
            gate=True,
            witness=True,
            after=("canary",),
            gate_period_s=0.1,
            params=params,
        ),
    )


def long_words(args: Mapping[str, Any]) -> int:
    """How many words, of a token or more, fill several blocks."""
    try:
        return max(WORDS, 3 * int(str(args.get("block-size", 0))))
    except ValueError:
        return WORDS


def target(spec: ComponentSpec) -> RankTarget:
    """The rank as the functional checks see it."""
    from yrnode.checks.functional import RankTarget

    canary = next(c.params for c in spec.checks if c.name == "canary")
    words = next((c.params["words"] for c in spec.checks if c.name == "cache"), WORDS)
    external = reads_external(spec.argv)
    return RankTarget(spec.name, spec.group or "", spec.url, canary["model"], canary["key"], external, words)


def asked(host: Host, group: Group) -> tuple[str, str]:
    """The model's name and the key for requests to the group, as its head has them."""
    args = node_args(group, head_node(group))
    env = node_env(host.cluster, group, head_node(group))
    return served_name(group, args), api_key(args, env)


def served_name(group: Group, args: Mapping[str, Any]) -> str:
    """The model's name in requests: the first served name, else the model as given."""
    names = args.get("served-model-name", group.model)
    return str(names[0]) if isinstance(names, tuple) else str(names)


def api_key(args: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """The key that requests need, or an empty string."""
    keys = args.get("api-key", env.get("VLLM_API_KEY", ""))
    return str(keys[0]) if isinstance(keys, tuple) else str(keys)


def _shutdown_timeout(args: Mapping[str, Any]) -> float:
    try:
        return float(str(args.get("shutdown-timeout", 0)))
    except ValueError:
        return float(SHUTDOWN_TIMEOUT_S)


def read_death(how: Exit, ready: bool, lines: list[str], name: str) -> Cause:
    """The cause of an exit that nobody asked for, whatever its code: vLLM ends with 0 after its engine died."""
    root = _root_cause(lines, died=how.code is None)
    if not ready:
        if how.code == 2:
            return Cause(Reason.CONFIGURATION, "vllm refused its command line (exit code 2)", root, name)
        return Cause(Reason.START_FAILED, f"did not start: {how}", root, name)
    text = (
        "exited: exit code 0 that nobody asked for, as after an engine's death" if how.code == 0 else f"exited: {how}"
    )
    return Cause(Reason.EXITED, text, root, name)


def _root_cause(lines: list[str], died: bool) -> str:
    """argparse's line, else the first ERROR line that names a process, else the last line that says anything.

    One that `died` of a signal, or unseen, had no last word: its last line would mislead. A warning may speak of
    errors too.
    """
    told = [x.strip() for x in lines if x.strip() and not x.startswith("---")]
    for line in told:
        if "error: " in line and "vllm" in line.split("error: ")[0]:
            return short(line, 300)
    for line in told:
        if "ERROR" in line and "pid=" in line:
            return short(line, 300)
    errors = [x for x in told if "Error" in x and "WARNING" not in x]
    last = [] if died else told
    return short((errors or last or [""])[-1], 300)


def loading(lines: list[str]) -> str:
    """What a rank that starts is at, by its own output; empty where that does not say. Its processes write into one
    file, each its own bar: the last line counts."""
    for line in reversed(lines):
        if found := _LOADING.search(line):
            return f"{found[1][0].lower()}{found[1][1:]}: {found[2]} % ({found[3]} of {found[4]})"
        if _LOADED in line:
            return "the weights are loaded; it prepares to serve"
    return ""
