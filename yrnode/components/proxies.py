"""Proxies in environments: our own traffic never takes one, a rank may keep its user's for downloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yrnode.components.host import Host
from yrnode.config.cluster import Cluster
from yrnode.model.spec import ComponentSpec

NAMES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
"""Lower case; upper case counts as well."""
DIRECT = ("no_proxy", "NO_PROXY")


def direct(cluster: Cluster, env: Mapping[str, str]) -> dict[str, str]:
    """`env`, in which every node of the cluster and this host itself are reached directly, beside what it said so."""
    said = [host.strip() for name in DIRECT for host in env.get(name, "").split(",")]
    if "*" in said:
        # a list with anything beside the star would not mean everything any more
        return {**env, **dict.fromkeys(DIRECT, "*")}
    nodes = (n.address for n in cluster.nodes.values())
    hosts = dict.fromkeys([*filter(None, said), "127.0.0.1", "localhost", "::1", *nodes])
    return {**env, **dict.fromkeys(DIRECT, ",".join(hosts))}


def found(env: Iterable[str]) -> list[str]:
    """The names of proxy variables in it."""
    return sorted(name for name in env if name.lower() in NAMES)


def notes(host: Host, specs: Iterable[ComponentSpec]) -> list[str]:
    """What becomes of proxy variables, a line each. Never their values, which may hold a password."""
    specs = list(specs)
    kept = {spec.name: found(spec.env) for spec in specs}
    lines = []
    if own := found(host.caller):
        # the same name may come from env_from or the file
        whom = ", ".join(name for name, names in kept.items() if not set(own) <= set(names))
        if whom:
            lines.append(f"proxy variables of yrnode's own environment are dropped for {whom}: {', '.join(own)}")
    for spec in specs:
        if not kept[spec.name]:
            continue
        bypassed = next((spec.env[name] for name in DIRECT if name in spec.env), "")
        past = f"not for {bypassed}" if bypassed else "for every address, also this cluster's own"
        lines.append(f"{spec.name} has a proxy ({', '.join(kept[spec.name])}), {past}")
    return lines
