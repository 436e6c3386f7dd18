"""What cannot work although every value for itself is right. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from yrnode.config import connectors, copying, hccl, layout, ports
from yrnode.config.cluster import Cluster
from yrnode.config.group import Group
from yrnode.config.render import env_tables
from yrnode.config.report import meant
from yrnode.config.yaml import KeyPath
from yrnode.model.units import MB

# Targets of the command line, the cache's own group, and kinds of components.
_TAKEN = frozenset({"all", "cache", "etcd", "worker", "rank", "router", "node"})
# What a word to a node would be taken for: the targets above that have an instance of this very name.
_TARGETS = _TAKEN - {"rank", "node"}
_SOCKET_LIMIT = 107
_NOT_HEADLESS = (
    *("data-parallel-external-lb", "data-parallel-hybrid-lb", "data-parallel-multi-port-external-lb"),
    "enable-fault-tolerance",
)
# Flags that have a key of their own; a second place could only disagree.
_WORKER_KEYS = {
    "worker_address": "port",
    "shared_memory_size_mb": "shared_memory",
    "node_timeout_s": "node_timeout",
    "node_dead_timeout_s": "node_dead_timeout",
    "enable_huge_tlb": "huge_pages",
    "remote_h2d_device_ids": "remote_h2d",
    "cluster_name": "cluster_name",
}
_WORKER_ETCD = {"etcd_address": "etcd", "enable_etcd_auth": "etcd.tls", "etcd_ca": "etcd.tls"}
# What follows from the file, or what yrnode could not do without: etcd's gateway, its log, its data in one place.
_ETCD_KEYS = {
    "name": "nodes",
    "data-dir": "data_dir",
    "wal-dir": "data_dir",
    "listen-client-urls": "client_port",
    "advertise-client-urls": "client_port",
    "listen-peer-urls": "peer_port",
    "initial-advertise-peer-urls": "peer_port",
    "initial-cluster": "nodes",
    "trusted-ca-file": "tls",
    "cert-file": "tls",
    "key-file": "tls",
    "peer-trusted-ca-file": "tls",
    "peer-cert-file": "tls",
    "peer-key-file": "tls",
}
_ETCD_OWN = (
    *("initial-cluster-state", "initial-cluster-token", "force-new-cluster", "config-file", "enable-grpc-gateway"),
    *("logger", "log-outputs", "discovery", "discovery-srv", "proxy"),
)


@dataclass(frozen=True)
class Problem:
    """A fault at a key: what is wrong and what to write."""

    path: KeyPath
    text: str


def problems(cluster: Cluster) -> list[Problem]:
    """Every fault between values; empty when the file can work."""
    found = [*_names(cluster), *_nodes(cluster), *_etcd(cluster), *_datasystem(cluster), *_router(cluster)]
    for name, group in cluster.groups.items():
        found += _group(cluster, name, group)
    found += _variables(cluster)
    if not found:
        found += [Problem(path, text) for path, text in ports.overlaps(cluster)]
        found += _device_overlaps(cluster)
    return found


def _names(cluster: Cluster) -> Iterator[Problem]:
    for group in _TAKEN & cluster.groups.keys():
        yield Problem(("groups", group), f"{group} has a meaning of its own; give the group another name")
    for node in _TARGETS & cluster.nodes.keys():
        yield Problem(("nodes", node), f"{node} has a meaning of its own; give the node another name")
    # `yrnode stop NAME` would mean either, and both would keep what an operator wants under one key
    for name in cluster.groups.keys() & cluster.nodes.keys():
        yield Problem(("groups", name), f"a node has the name {name} too; give one of the two another name")
    for key, check in cluster.checks.items():
        if check.stall_timeout is not None and not key.startswith("rank."):
            yield Problem(("checks", key, "stall_timeout"), "only a check of ranks has it; remove it")
        for field in ("period", "timeout", "stall_timeout"):
            if getattr(check, field) == 0:
                yield Problem(("checks", key, field), "it is 0; write a duration above it")


def _nodes(cluster: Cluster) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    loopback = [name for name, node in cluster.nodes.items() if IPv4Address(node.address).is_loopback]
    for name, node in cluster.nodes.items():
        first = owner.setdefault(node.address, name)
        if first != name:
            yield Problem(("nodes", name, "address"), f"{node.address} is {first}'s address; give each node its own")
        if name in loopback and len(loopback) < len(cluster.nodes):
            text = f"other nodes cannot reach {node.address}; write the address of its network interface"
            yield Problem(("nodes", name, "address"), text)
        if node.run_dir:
            yield from _socket(("nodes", name, "run_dir"), node.run_dir)
    yield from _socket(("run_dir",), cluster.run_dir)


def _socket(path: KeyPath, run_dir: Path) -> Iterator[Problem]:
    if len(str(run_dir / "yrnode.sock").encode()) > _SOCKET_LIMIT:
        text = f"{run_dir} is too long for a socket in it; write a path of at most {_SOCKET_LIMIT - 12} bytes"
        yield Problem(path, text)


def _variables(cluster: Cluster) -> Iterator[Problem]:
    for path, env in env_tables(cluster):
        value = env.get("VLLM_PORT", "0")
        # what stands for another variable is known only on the host
        if "${" not in value and not value.isdecimal():
            yield Problem(
                (*path, "VLLM_PORT"), f'"{value}" is no port, and vLLM refuses it; write a number or remove it'
            )
    yield from (Problem(path, text) for path, text in (*hccl.faults(cluster), *copying.faults(cluster)))


def _etcd(cluster: Cluster) -> Iterator[Problem]:
    etcd = cluster.etcd
    if etcd.nodes and etcd.external:
        yield Problem(("etcd", "external"), "etcd is either on nodes or external; remove one of the two")
    for at, node in enumerate(etcd.nodes):
        if node not in cluster.nodes:
            yield _unknown(("etcd", "nodes", at), "node", node, cluster.nodes)
    for node, count in Counter(etcd.nodes).items():
        if count > 1:
            yield Problem(("etcd", "nodes"), f"{node} is named twice; name each node once")
    if etcd.nodes and len(etcd.nodes) not in (1, 3, 5):
        yield Problem(("etcd", "nodes"), f"{len(etcd.nodes)} nodes are no good majority; name 1, 3 or 5")
    for at, url in enumerate(etcd.external):
        if etcd.tls and url.startswith("http://"):
            yield Problem(("etcd", "external", at), f"{url} is plain, and tls is set; write https:// or remove tls")
    if etcd.tls and bool(etcd.tls.cert) != bool(etcd.tls.key):
        yield Problem(("etcd", "tls"), "cert and key belong together; write both")
    if etcd.tls and not etcd.tls.cert and layout.etcd_nodes(cluster):
        yield Problem(("etcd", "tls"), "etcd on our nodes serves TLS with a certificate; write cert and key")
    if etcd.args and etcd.external:
        yield Problem(
            ("etcd", "args"), "yrnode does not start an external etcd; give it its flags where it is started"
        )
    for flag, value in etcd.args.items():
        if flag in _ETCD_KEYS:
            yield Problem(("etcd", "args", flag), f"it has its own key; write etcd.{_ETCD_KEYS[flag]}")
        elif flag in _ETCD_OWN:
            yield Problem(("etcd", "args", flag), "yrnode needs it as it sets it; remove it")
        elif flag == "quota-backend-bytes" and not (value.isdecimal() and int(value)):
            yield Problem(("etcd", "args", flag), f"{value} is no quota; write a number of bytes above 0")


def _datasystem(cluster: Cluster) -> Iterator[Problem]:
    data = cluster.datasystem
    for key in ("node_timeout", "node_dead_timeout", "start_timeout"):
        value: float = getattr(data, key)
        if value < 1 or value != int(value):
            yield Problem(("datasystem", key), "the worker takes whole seconds; write 1s or more")
    if data.node_dead_timeout <= data.node_timeout:
        text = "a worker is dead only after it was lost; write a longer duration than node_timeout"
        yield Problem(("datasystem", "node_dead_timeout"), text)
    if data.shared_memory < MB or data.shared_memory % MB:
        yield Problem(("datasystem", "shared_memory"), "the worker takes whole MB; write one such as 512MB")
    if data.remote_h2d and not data.huge_pages:
        yield Problem(("datasystem", "remote_h2d"), "it needs huge pages; write huge_pages: true")
    if len(set(data.remote_h2d)) != len(data.remote_h2d):
        yield Problem(("datasystem", "remote_h2d"), "a device is named twice; name each once")
    if data.cluster_name == "yrnode":
        yield Problem(("datasystem", "cluster_name"), "yrnode's own keys begin with it; write another name")
    for flag, key in _WORKER_KEYS.items():
        if flag in data.args:
            yield Problem(("datasystem", "args", flag), f"it has its own key; write datasystem.{key}")
    for flag, key in _WORKER_ETCD.items():
        if flag in data.args:
            yield Problem(("datasystem", "args", flag), f"it follows from {key}; remove it")
    yield from _worker_and_etcd(cluster)


def _worker_and_etcd(cluster: Cluster) -> Iterator[Problem]:
    """How the worker gets into etcd: with TLS by a certificate, with users by the CN of one."""
    etcd, args = cluster.etcd, cluster.datasystem.args
    exposed = "the worker takes a password on its command line alone, where everybody on the host reads it"
    cure = "etcd_cert and etcd_key in datasystem.args, of a certificate whose CN is a user of etcd"
    for flag in ("etcd_username", "etcd_password"):
        if flag in args:
            yield Problem(("datasystem", "args", flag), f"{exposed}; remove it, and write {cure}")
    own = [flag for flag in ("etcd_cert", "etcd_key") if flag in args]
    if len(own) == 1:
        yield Problem(("datasystem", "args", own[0]), "etcd_cert and etcd_key belong together; write both")
    elif own and not etcd.tls:
        yield Problem(("datasystem", "args", own[0]), "it is for etcd with TLS; write etcd.tls too, or remove it")
    elif etcd.auth and not own:
        tls = "" if etcd.tls else "etcd.tls, and "
        yield Problem(("etcd", "auth"), f"{exposed}; write {tls}{cure}")
    elif etcd.external and etcd.tls and not etcd.tls.cert and not own:
        yield Problem(("etcd", "tls"), "the worker speaks TLS only with a certificate of its own; write cert and key")
    elif not etcd.tls and any(url.startswith("https://") for url in etcd.external):
        yield Problem(("etcd", "external"), "the worker trusts no CA but that of the file; write etcd.tls")
    name, several = "etcd_target_name_override", len(etcd.external or layout.etcd_nodes(cluster)) > 1
    if name in args and not etcd.tls:
        yield Problem(("datasystem", "args", name), "it is for etcd with TLS; write etcd.tls too, or remove it")
    elif etcd.tls and several and name not in args:
        # measured: without it the worker takes the whole list of addresses for the name, and never gets in
        text = "the worker looks for one name in the certificates of all members; write one that all of them have"
        yield Problem(("etcd", "tls"), f"{text} as {name} in datasystem.args")


def _group(cluster: Cluster, name: str, group: Group) -> Iterator[Problem]:
    at: KeyPath = ("groups", name)
    for node in [*group.ranks, *group.devices, *group.nodes]:
        key = "ranks" if node in group.ranks else "devices" if node in group.devices else "nodes"
        if node not in cluster.nodes:
            yield _unknown((*at, key, node), "node", node, cluster.nodes)
        elif key != "ranks":
            yield Problem((*at, key, node), f"{node} has no rank of this group; add it to ranks or remove it")
    if not layout.data_parallel_size(group):
        yield Problem((*at, "ranks"), "the group has no rank; write a node and its number of ranks, n0: 1")
        return
    yield from _devices(at, group)
    yield from _pair(cluster, name, group)
    yield from (Problem(path, text) for path, text in connectors.faults(cluster, name, group))
    for index, other in enumerate(group.restart_with):
        if other == name:
            yield Problem((*at, "restart_with", index), "the group names itself; remove it")
        elif other not in cluster.groups:
            yield _unknown((*at, "restart_with", index), "group", other, cluster.groups)
    for index, variable in enumerate(group.unset):
        if variable in group.env or any(variable in node.env for node in group.nodes.values()):
            yield Problem((*at, "unset", index), f"{variable} is set in this group's env too; keep one of the two")
    if group.start_timeout <= 0:
        yield Problem((*at, "start_timeout"), "it is 0; write a duration such as 30m")
    yield from _flags(at, group)


def _devices(at: KeyPath, group: Group) -> Iterator[Problem]:
    width = layout.devices_per_rank(group)
    for node, devices in group.devices.items():
        count = group.ranks.get(node, 0) * width
        if count and len(devices) != count:
            sizes = f"{'.'.join(map(str, at))}.ranks.{node} times {width} each (tensor_parallel) is {count}"
            text = f"it names {len(devices)}, and {sizes}; write as many"
            yield Problem((*at, "devices", node), text)
        if len(set(devices)) != len(devices):
            yield Problem((*at, "devices", node), "a device is named twice; name each once")


def _pair(cluster: Cluster, name: str, group: Group) -> Iterator[Problem]:
    at: KeyPath = ("groups", name)
    if group.peer is None:
        if group.kv_connector.mooncake:
            yield Problem((*at, "kv_connector", "mooncake"), "Mooncake needs the other group's sizes; write peer: …")
    elif group.peer == name:
        yield Problem((*at, "peer"), "the group names itself; name the other group of the pair")
    elif group.peer not in cluster.groups:
        yield _unknown((*at, "peer"), "group", group.peer, cluster.groups)
    elif cluster.groups[group.peer].peer not in (None, name):
        text = f"{group.peer} names {cluster.groups[group.peer].peer} as its peer; let the two name each other"
        yield Problem((*at, "peer"), text)
    elif {group.role, cluster.groups[group.peer].role} != {"producer", "consumer"}:
        text = f"one of {name} and {group.peer} prefills and one decodes; write role: producer and role: consumer"
        yield Problem((*at, "peer"), text)


def _flags(at: KeyPath, group: Group) -> Iterator[Problem]:
    """Flags in `args` that say another thing than the key which yrnode counts with."""
    own = {
        "tensor-parallel-size": ("tensor_parallel", group.tensor_parallel),
        "data-parallel-size": ("ranks", layout.data_parallel_size(group)),
        "data-parallel-rpc-port": ("rpc_port", group.rpc_port),
        "port": ("port", None),
        "data-parallel-rank": ("ranks", None),
        "data-parallel-start-rank": ("ranks", None),
        "data-parallel-size-local": ("ranks", None),
        "headless": ("mode", None),
        "model": ("model", None),
    }
    tables = [((*at, "args"), group.args)]
    tables += [((*at, "nodes", node, "args"), part.args) for node, part in group.nodes.items()]
    for path, args in tables:
        for flag, (key, value) in own.items():
            if flag in args and (value is None or str(args[flag]) != str(value)):
                yield Problem((*path, flag), f"it has its own key; write {key} of the group")
        yield from _headless(path, group, args)
        for flag in args if group.kv_connector.mooncake or group.kv_connector.ascend_store else ():
            if flag.partition(".")[0] == connectors.FLAG:
                yield Problem((*path, flag), "kv_connector writes it; keep one of the two")


def _headless(path: KeyPath, group: Group, args: Mapping[str, object]) -> Iterator[Problem]:
    """What vLLM, or its head, does not take beside headless servers."""
    if group.mode != "headless":
        return
    for flag in _NOT_HEADLESS:
        if args.get(flag, False) is not False:
            yield Problem((*path, flag), "it needs a server for each rank; remove it, or write mode: external")
    if args.get("data-parallel-backend") == "ray":
        yield Problem((*path, "data-parallel-backend"), "ray starts the other ranks itself; remove it")
    if "api-server-count" in args and path[2] == "nodes" and path[3] != layout.head_node(group):
        yield Problem((*path, "api-server-count"), f"the server on {path[3]} is headless; remove it")


def _router(cluster: Cluster) -> Iterator[Problem]:
    router = cluster.router
    if router is None:
        return
    if router.node not in cluster.nodes:
        yield _unknown(("router", "node"), "node", router.node, cluster.nodes)
    for key in ("prefill", "decode", "group"):
        group = getattr(router, key)
        if group is not None and group not in cluster.groups:
            yield _unknown(("router", key), "group", group, cluster.groups)
    if bool(router.prefill) != bool(router.decode):
        yield Problem(("router",), "prefill and decode belong together; write both, or group")
    elif router.prefill and router.group:
        yield Problem(("router", "group"), "the router has prefill and decode already; remove one of the two")
    elif router.prefill and router.prefill == router.decode:
        yield Problem(("router", "decode"), "it is the prefill group; name the decode group, or write group")
    elif not router.prefill and not router.group and len(cluster.groups) > 1:
        yield Problem(("router",), "it is open which groups are behind it; write prefill and decode, or group")
    for key, wrong in (("prefill", "consumer"), ("decode", "producer")):
        named = cluster.groups.get(getattr(router, key) or "")
        if named is not None and named.role == wrong:
            text = f"groups.{getattr(router, key)}.role is {wrong}; name the other group, or correct its role"
            yield Problem(("router", key), text)
    if router.kind == "ascend-proxy":
        if router.script is None:
            yield Problem(("router",), "ascend-proxy needs script; write the path of vllm-ascend's proxy")
        if not router.prefill:
            yield Problem(("router",), "ascend-proxy needs prefill and decode; write both, or kind: vllm-router")
    if router.kind == "command" and router.argv is None:
        yield Problem(("router",), "kind: command needs argv; write the command's words")
    if router.kind != "command" and router.argv is not None:
        yield Problem(("router", "argv"), "only kind: command has it; remove it")
    if router.kind != "ascend-proxy" and router.script is not None:
        yield Problem(("router", "script"), "only kind: ascend-proxy has it; remove it")


def _device_overlaps(cluster: Cluster) -> Iterator[Problem]:
    for node in cluster.nodes:
        owner: dict[int, str] = {}
        for name, group in cluster.groups.items():
            if not group.ranks.get(node):
                continue
            mine = layout.node_devices(group, node)
            taken = sorted({device for device in mine if device in owner})
            if taken:
                other = owner[taken[0]]
                by = f"group {other} (groups.{other}.devices.{node})"
                text = f"device {taken[0]} of {node} is used by {by} too; write devices for both groups"
                where: KeyPath = ("groups", name, "devices", node)
                yield Problem(where, text)
            owner.update({device: name for device in mine if device not in owner})


def _unknown(path: KeyPath, kind: str, word: str, words: Iterable[str]) -> Problem:
    return Problem(path, f"there is no {kind} {word}; {meant(word, words)}")
