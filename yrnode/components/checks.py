"""A component's checks with what the cluster file says about them."""

from __future__ import annotations

import math
from dataclasses import replace

from yrnode.checks import canary, retrieval
from yrnode.config.cluster import Check, Cluster
from yrnode.model.errors import UsageError
from yrnode.model.spec import CheckSpec

LOOK_S = 1.0
MARGIN_S = 5.0
"""A check that asks for completions keeps its own time, and must come to its end."""
NAMES: dict[str, tuple[str, ...]] = {
    "etcd": ("process", "quorum", "read", "write", "alarms"),
    "worker": ("process", "liveness", "key", "ring", "kv"),
    "rank": ("process", "processes", "health", "engine", "progress", "canary", "cache"),
    "router": ("process", "health", "completion"),
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
        elif check.stall_timeout is not None and key != "rank.progress":
            faults.append(f"checks.{key}.stall_timeout: this check does not have it; remove it")
    if faults:
        raise UsageError(*faults)


def tuned(cluster: Cluster, kind: str, checks: tuple[CheckSpec, ...]) -> tuple[CheckSpec, ...]:
    """The checks of a component of this kind, with the file's own periods, timeouts, thresholds and mode."""
    return tuple(_paced(_tuned(spec, cluster.checks.get(f"{kind}.{spec.name}"))) for spec in checks)


def _tuned(spec: CheckSpec, own: Check | None) -> CheckSpec:
    if own is None:
        return spec
    if own.stall_timeout is not None:
        spec = replace(spec, params={**spec.params, "stall_timeout_s": own.stall_timeout})
    return replace(
        spec,
        period_s=own.period or spec.period_s,
        gate_period_s=min(spec.gate_period_s, own.period or spec.gate_period_s),
        timeout_s=own.timeout or spec.timeout_s,
        failures=own.failures or spec.failures,
        successes=own.successes or spec.successes,
        act=spec.act and own.mode == "act",
    )


def _paced(spec: CheckSpec) -> CheckSpec:
    """A canary's period is that of an idle rank: whether one is due for another reason is looked at more often."""
    if spec.kind == "canary":
        longest_s = max(spec.timeout_s, canary.FIRST_S)
    elif spec.kind == "retrieval":
        # the first prompt, or a late one, and after it a short one
        longest_s = retrieval.FIRST_S + (retrieval.MOST_PATIENCE + 2) * spec.timeout_s
    else:
        return spec
    # one that never asks while idle still asks once an engine is stopped
    asked = {"idle_s": spec.period_s if spec.params.get("idle", True) else math.inf, "answer_s": spec.timeout_s}
    return replace(
        spec,
        period_s=min(LOOK_S, spec.period_s / 10),
        timeout_s=longest_s + MARGIN_S,
        params={**spec.params, **asked},
    )
