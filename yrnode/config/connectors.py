"""What vLLM's KV connectors cannot be told: values of two places that contradict each other. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from yrnode.config.cluster import Cluster
from yrnode.config.group import Group
from yrnode.config.yaml import KeyPath

Fault = tuple[KeyPath, str]

FLAG = "kv-transfer-config"
# Keys of the connector itself, each with the key of this file that it follows from.
_OWN = {
    "kv_connector": "kv_connector",
    "kv_role": "role",
    "kv_port": "kv_connector.mooncake.kv_port",
    "engine_id": "kv_connector.mooncake.engine_id",
    "kv_connector_module_path": "kv_connector.mooncake.module_path",
}


def faults(cluster: Cluster, name: str, group: Group) -> Iterator[Fault]:
    """Contradictions of a group whose own values are right."""
    at: KeyPath = ("groups", name)
    own = group.kv_connector
    for key, part in (("mooncake", own.mooncake), ("ascend_store", own.ascend_store)):
        for word in _OWN.keys() & (part.extra if part is not None else {}).keys():
            text = f"it follows from groups.{name}.{_OWN[word]}; remove it, and write that"
            yield (*at, "kv_connector", key, "extra", word), text
    yield from _sizes(at, group)
    yield from _ends(cluster, at, group)
    yield from _twins(cluster, name, group)
    yield from _lookup_ports(at, group)
    tables: list[tuple[KeyPath, Mapping[str, Any]]] = [((*at, "args"), group.args)]
    tables += [((*at, "nodes", node, "args"), part.args) for node, part in group.nodes.items()]
    for path, args in tables:
        if args.get(FLAG, False) is not False:
            yield from _typed((*path, FLAG), name, group, args[FLAG])


def _sizes(at: KeyPath, group: Group) -> Iterator[Fault]:
    for word in ("prefill", "decode"):
        if group.kv_connector.mooncake is not None and word in group.kv_connector.mooncake.extra:
            text = "it follows from ranks and tensor_parallel of the two groups; remove it"
            yield (*at, "kv_connector", "mooncake", "extra", word), text


def _ends(cluster: Cluster, at: KeyPath, group: Group) -> Iterator[Fault]:
    other = cluster.groups.get(group.peer or "")
    if group.kv_connector.mooncake is not None and other is not None and other.kv_connector.mooncake is None:
        text = f"groups.{group.peer}.kv_connector has none, and one hands over to the other; write it there too"
        yield (*at, "kv_connector", "mooncake"), text


def _twins(cluster: Cluster, name: str, group: Group) -> Iterator[Fault]:
    """What the two groups must not have in common. Decode ranks assert that they are given another engine's."""
    other = cluster.groups.get(group.peer or "")
    if other is None or group.role != "consumer":
        return
    at: KeyPath = ("groups", name, "kv_connector", "mooncake")
    one, two = group.kv_connector.mooncake, other.kv_connector.mooncake
    if one is None or two is None:
        return
    there = f"groups.{group.peer}.kv_connector.mooncake"
    if one.engine_id is not None and one.engine_id == two.engine_id:
        text = f'"{one.engine_id}" is {there}.engine_id too, and decode ranks refuse that; remove one of the two'
        yield (*at, "engine_id"), text
    met = [node for node, count in group.ranks.items() if count and other.ranks.get(node)]
    if met and one.kv_port == two.kv_port:
        text = f"{one.kv_port} is {there}.kv_port too, and both groups are on {met[0]}; write another port for each"
        yield (*at, "kv_port"), text


def _lookup_ports(at: KeyPath, group: Group) -> Iterator[Fault]:
    store = group.kv_connector.ascend_store
    crowded = [node for node, count in group.ranks.items() if count > 1]
    if store is not None and "lookup_rpc_port" in store.extra and crowded and group.mode == "external":
        text = f"all ranks on {crowded[0]} would have the same; remove it: each then gets its own number"
        yield (*at, "kv_connector", "ascend_store", "extra", "lookup_rpc_port"), text


def _typed(path: KeyPath, name: str, group: Group, value: object) -> Iterator[Fault]:
    """A configuration in `args`: one role on all its levels, and the group's where that is written."""
    try:
        config = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        yield path, "it is no JSON; write a mapping, {kv_connector: …}"
        return
    if not isinstance(config, dict):
        yield path, "it is no mapping; write one, {kv_connector: …}"
        return
    roles = list(_roles(config, FLAG))
    if "role" in group.model_fields_set:
        roles.insert(0, (f"groups.{name}.role", f"kv_{group.role}"))
    for place, role in roles[1:]:
        if role != roles[0][1]:
            yield path, f"{place} is {role}, and {roles[0][0]} {roles[0][1]}; write one role in all places"
            return


def _roles(config: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    if "kv_role" in config:
        yield f"{place}.kv_role", str(config["kv_role"])
    extra = config.get("kv_connector_extra_config")
    parts = extra.get("connectors") if isinstance(extra, dict) else None
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, dict):
            yield from _roles(part, f"connectors[{index}]")
