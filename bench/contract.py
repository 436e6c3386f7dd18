"""The figures that yrnode is to reach: name, unit, target, and which of the samples is held against it."""

from __future__ import annotations

from dataclasses import dataclass

SHARES = {"p50": 0.5, "p99": 0.99, "worst": 1.0}


@dataclass(frozen=True)
class Line:
    """`target` None: shown, not judged. `inclusive`: the target itself is still good."""

    name: str
    what: str
    unit: str
    target: float | None
    stat: str = "worst"
    inclusive: bool = False

    @property
    def share(self) -> float:
        return SHARES[self.stat]


CONTRACT = (
    Line("child-death-seen", "child killed to seen by the loop, 3 children", "ms", 10, "p99"),
    Line("adopted-death-seen", "adopted child killed to seen, 3 children", "ms", 10, "p99"),
    Line("respawn", "child killed to the replacement's first word, 3 children", "ms", 50, "p50"),
    Line("worker-freeze-seen", "frozen worker seen", "s", 5),
    Line("engine-freeze-seen", "frozen engine seen", "s", 60),
    Line("false-alarms", "false verdicts in an hour of saturation", "count", 0, inclusive=True),
    Line("group-stop-8", "bump to the last of 8 nodes stopping", "ms", 50, "p99"),
    Line("group-stop-256", "bump to the last of 256 nodes stopping", "ms", 500, "p99"),
    Line("go-8", "all members clean to all starting, 8 nodes", "ms", 200, "p99"),
    Line("node-loss-seen", "dead node to peer_up 0 at its peers, lease 5 s", "s", 6, inclusive=True),
    Line("livez", "GET /livez", "ms", 5, "p99"),
    Line("metrics", "GET /metrics with 16 ranks", "ms", 20, "p99"),
    Line("idle-rss", "resident memory of the daemon: etcd, worker, 2 ranks", "MiB", 60),
    Line("idle-cpu", "CPU of the daemon: etcd, worker, 2 ranks, 1 s checks", "% of a core", 1),
    Line("cold-start", "yrnode run to the first /livez 200", "s", 1),
)
"""Every name that has to be there."""

VARIANTS = (
    Line("child-death-seen-100", "the same, 100 children", "ms", 10, "p99"),
    Line("adopted-death-seen-100", "the same, 100 children", "ms", 10, "p99"),
    Line("respawn-100", "the same, 100 children", "ms", 50, "p50"),
    Line("respawn-adopted", "adopted child killed to its replacement, 3 children", "ms", 50, "p50"),
    Line("respawn-adopted-100", "the same, 100 children", "ms", 50, "p50"),
    Line("group-stop-64", "bump to the last of 64 nodes stopping", "ms", None, "p99"),
    Line("engine-freeze-seen-spinning", "spinning engine seen, beyond its stall_timeout", "s", None),
)
"""The same with more children, and what is shown beside."""

LINES = {line.name: line for line in (*CONTRACT, *VARIANTS)}


def chosen(only: str) -> set[str]:
    """The names that `only` asks for: all, or one with its variants. KeyError for a name that there is not."""
    if not only:
        return set(LINES)
    if only not in LINES:
        raise KeyError(only)
    return {name for name in LINES if name == only or (name.startswith(f"{only}-") and name not in CONTRACT_NAMES)}


CONTRACT_NAMES = tuple(line.name for line in CONTRACT)
