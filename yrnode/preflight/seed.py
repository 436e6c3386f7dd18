"""PYTHONHASHSEED: with different ones no rank finds what another has put into the external cache."""

from __future__ import annotations

from collections.abc import Mapping

from yrnode.components import vllm
from yrnode.config.cluster import Cluster
from yrnode.config.layout import group_nodes
from yrnode.config.render import node_env
from yrnode.preflight.finding import Finding, Look, blocker, good, not_here

NAME, VARIABLE = "hash seed", "PYTHONHASHSEED"


def look(at: Look) -> list[Finding]:
    return [judge(seeds(at.host.cluster))]


def seeds(cluster: Cluster) -> dict[str, str]:
    """By group and node of the whole cluster, where ranks share the cache. Empty: unset, a new one each start."""
    found = {}
    for name, group in cluster.groups.items():
        if group.kv_connector.ascend_store is None:
            continue
        for node in group_nodes(group):
            env = {VARIABLE: vllm.HASH_SEED, **node_env(cluster, group, node)}
            found[f"{name} on {node}"] = "" if VARIABLE in group.unset else env[VARIABLE]
    return found


def judge(found: Mapping[str, str]) -> Finding:
    if not found:
        return not_here(NAME, "no group keeps blocks in the external cache")
    values, cure = set(found.values()), f"remove {VARIABLE} from env and unset: yrnode sets {vllm.HASH_SEED}"
    if values & {"", "random"}:
        where = ", ".join(place for place, value in found.items() if value in ("", "random"))
        return blocker(NAME, f"{VARIABLE} is not fixed for {where}", "one number for all ranks", cure)
    if len(values) > 1:
        words = ", ".join(f"{value} for {place}" for place, value in found.items())
        return blocker(NAME, f"{VARIABLE} is {words}", "one number for all ranks", cure)
    return good(NAME, f"{VARIABLE} is {values.pop()} for all ranks")
