"""PYTHONHASHSEED: with different ones no rank finds what another has put into the external cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from yrnode.components import vllm
from yrnode.config.cluster import Cluster
from yrnode.config.layout import group_nodes
from yrnode.config.render import node_env
from yrnode.preflight.finding import Finding, Look, blocker, good, not_here

NAME, VARIABLE = "hash seed", "PYTHONHASHSEED"


def look(at: Look) -> list[Finding]:
    cluster = at.host.cluster
    return judge([seeds(cluster, names) for names in sharing(cluster)])


def sharing(cluster: Cluster) -> list[list[str]]:
    """Groups that find each other's blocks in the external cache: of one model, or prefill and decode of a pair."""
    found: list[list[str]] = []
    for name, group in cluster.groups.items():
        if group.kv_connector.ascend_store is None:
            continue
        alike = [names for names in found if any(_meet(cluster, name, other) for other in names)]
        found = [names for names in found if names not in alike]
        found.append([*(other for names in alike for other in names), name])
    return found


def _meet(cluster: Cluster, one: str, other: str) -> bool:
    a, b = cluster.groups[one], cluster.groups[other]
    return a.model == b.model or a.peer == other or b.peer == one


def seeds(cluster: Cluster, names: Iterable[str]) -> dict[str, str]:
    """By group and node. Empty: unset, a new one each start. What only the host knows is left out."""
    found = {}
    for name in names:
        group = cluster.groups[name]
        for node in group_nodes(group):
            env = {VARIABLE: vllm.HASH_SEED, **node_env(cluster, group, node)}
            found[f"{name} on {node}"] = "" if VARIABLE in group.unset else env[VARIABLE]
    return {place: value for place, value in found.items() if "${" not in value}


def judge(found: Iterable[Mapping[str, str]]) -> list[Finding]:
    """`found`: the seeds of those that share blocks."""
    groups = [values for values in found if values]
    if not groups:
        return [not_here(NAME, "no group keeps blocks in the external cache")]
    bad = [finding for values in groups for finding in _unlike(values)]
    return bad or [good(NAME, f"{VARIABLE} is {_all(groups)} for all ranks that share blocks")]


def _all(groups: Iterable[Mapping[str, str]]) -> str:
    return " and ".join(dict.fromkeys(value for values in groups for value in values.values()))


def _unlike(found: Mapping[str, str]) -> Iterator[Finding]:
    values, cure = set(found.values()), f"remove {VARIABLE} from env and unset: yrnode sets {vllm.HASH_SEED}"
    needed = "one number for all ranks that share blocks"
    if values & {"", "random"}:
        where = ", ".join(place for place, value in found.items() if value in ("", "random"))
        yield blocker(NAME, f"{VARIABLE} is not fixed for {where}", needed, cure)
    elif len(values) > 1:
        words = ", ".join(f"{value} for {place}" for place, value in found.items())
        yield blocker(NAME, f"{VARIABLE} is {words}", needed, cure)
