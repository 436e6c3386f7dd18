"""A component's checks with what the cluster file says about them."""

from __future__ import annotations

from dataclasses import replace

from yrnode.config.cluster import Check, Cluster
from yrnode.model.spec import CheckSpec


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
