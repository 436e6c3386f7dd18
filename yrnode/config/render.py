"""Arguments and variables of the cluster file as a process gets them. Pure."""

from collections.abc import Mapping
from typing import Any

from yrnode.config.cluster import Cluster
from yrnode.config.fields import json_text
from yrnode.config.group import Group
from yrnode.config.yaml import KeyPath


def args_list(args: Mapping[str, Any]) -> list[str]:
    """`args` as words: true is the flag alone, false nothing, a mapping JSON, a list one word per item."""
    words: list[str] = []
    for name, value in args.items():
        if value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, Mapping):
            words.append(json_text(value))
        elif isinstance(value, tuple | list):
            words += value
        elif value is not True:
            words.append(value)
    return words


def node_args(group: Group, node: str) -> dict[str, Any]:
    """The group's `args` with the node's own over them."""
    own = group.nodes.get(node)
    return {**group.args, **(own.args if own else {})}


def env_layers(cluster: Cluster, name: str, node: str) -> list[tuple[KeyPath, Mapping[str, str]]]:
    """The tables that give variables to a group's ranks on a node, with their keys; the later wins."""
    group = cluster.groups[name]
    layers: list[tuple[KeyPath, Mapping[str, str]]] = [
        (("env",), cluster.env),
        (("nodes", node, "env"), cluster.nodes[node].env),
        (("groups", name, "env"), group.env),
    ]
    own = group.nodes.get(node)
    return [*layers, (("groups", name, "nodes", node, "env"), own.env)] if own else layers


def env_tables(cluster: Cluster) -> list[tuple[KeyPath, Mapping[str, str]]]:
    """Every table of variables of ranks in the file, each once."""
    places = [(name, node) for name in cluster.groups for node in cluster.nodes]
    return list({path: (path, env) for place in places for path, env in env_layers(cluster, *place)}.values())


def node_env(cluster: Cluster, group: Group, node: str) -> dict[str, str]:
    """Variables of the group's ranks on a node; the later wins: cluster, node, group, the group's on that node.

    What the group unsets is left out. `${NAME}` is not yet replaced.
    """
    own = group.nodes.get(node)
    env = {**cluster.env, **cluster.nodes[node].env, **group.env, **(own.env if own else {})}
    return {name: value for name, value in env.items() if name not in group.unset}
