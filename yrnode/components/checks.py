"""A component's checks with what the cluster file says about them."""

from __future__ import annotations

from dataclasses import replace

from yrnode.config.cluster import Check, Cluster
from yrnode.model.errors import UsageError
from yrnode.model.spec import CheckSpec

NAMES: dict[str, tuple[str, ...]] = {
    "etcd": ("process", "read", "write"),
    "worker": ("process", "key", "ring", "kv"),
    "rank": ("process", "processes", "health", "canary"),
    "router": ("process", "health"),
    "node": (),
}
"""The checks of every kind of component, also of those that this node does not run."""


def refuse_unknown(cluster: Cluster) -> None:
    """UsageError for what the file's `checks` say of a check that there is not, or that it does not have."""
    names = [f"{kind}.{name}" for kind, known in NAMES.items() for name in known]
    faults = []
    for key, check in cluster.checks.items():
        if key not in names:
            kind = key.partition(".")[0]
            there = [name for name in names if name.startswith(f"{kind}.")] or names
            faults.append(f"checks.{key}: there is no such check; write one of {', '.join(there)}")
        elif check.stall_timeout is not None:
            faults.append(f"checks.{key}.stall_timeout: this check does not have it; remove it")
    if faults:
        raise UsageError(*faults)


def tuned(cluster: Cluster, kind: str, checks: tuple[CheckSpec, ...]) -> tuple[CheckSpec, ...]:
    """The checks of a component of this kind, with the file's own periods, timeouts, thresholds and mode."""
    return tuple(_tuned(spec, cluster.checks.get(f"{kind}.{spec.name}")) for spec in checks)


def _tuned(spec: CheckSpec, own: Check | None) -> CheckSpec:
    if own is None:
        return spec
    return replace(
        spec,
        period_s=own.period or spec.period_s,
        gate_period_s=min(spec.gate_period_s, own.period or spec.gate_period_s),
        timeout_s=own.timeout or spec.timeout_s,
        failures=own.failures or spec.failures,
        successes=own.successes or spec.successes,
        act=spec.act and own.mode == "act",
    )
