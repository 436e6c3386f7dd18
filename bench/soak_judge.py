"""What a soak holds yrnode to. Pure: statuses, requests and measured points in; broken invariants out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.slopes import trend
from bench.soak_stack import Gauges, Request

GRACE_S = 2.0
"""A request that began so shortly after a recovery may have met the last of it."""


@dataclass(frozen=True)
class Contract:
    """What one action may cost: the components that are restarted, each once, the groups whose number goes up, and
    the ranks whose requests may fail. All else is untouched. `lives`: by how much, where it is more than one."""

    restarted: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    may_fail: frozenset[str] = frozenset()
    new_daemon: bool = False
    lives: int = 1


@dataclass(frozen=True)
class Window:
    """From the beginning of an action until all was well again, monotonic seconds."""

    name: str
    began: float
    ended: float
    may_fail: frozenset[str]


def done(before: Mapping[str, Any], after: Mapping[str, Any], contract: Contract) -> bool:
    """Whether all that must be restarted is there again."""
    return bool(after.get("ready")) and contract.restarted <= changed(before, after)


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> frozenset[str]:
    """The components that are another instance or another process."""
    was, now = before["components"], after["components"]
    return frozenset(n for n in was if any(was[n][k] != now.get(n, {}).get(k) for k in ("instance", "pid")))


def broken(before: Mapping[str, Any], after: Mapping[str, Any], contract: Contract) -> list[str]:
    """What is not as the contract says, one line each."""
    found = []
    if not after.get("ready"):
        return [f"the stack is not ready: {'; '.join(after.get('reasons', ['the daemon does not answer']))}"]
    moved = changed(before, after)
    for name in sorted(moved - contract.restarted):
        found.append(f"{name} was restarted, and had to be left alone: {after['components'][name]['last_failure']}")
    found += [f"{name} was not restarted" for name in sorted(contract.restarted - moved)]
    for name, c in after["components"].items():
        rose = c["generation"] - before["components"][name]["generation"]
        due = contract.lives if name in contract.restarted else 0
        if rose != due:
            found.append(f"the generation of {name} went up by {rose}, not by {due}")
    for name, g in after["groups"].items():
        rose = g["generation"] - before["groups"][name]["generation"]
        due = contract.lives if name in contract.groups else 0
        if rose != due:
            found.append(f"the generation of group {name} went up by {rose}, not by {due}")
        if g["stage"] != "go":
            found.append(f"group {name} is at {g['stage']}")
    if (before["started_at"] != after["started_at"]) != contract.new_daemon:
        found.append(f"the daemon {'is the same one' if contract.new_daemon else 'is another one'}")
    return found


def outside(requests: Sequence[Request], windows: Sequence[Window]) -> list[Request]:
    """Requests that failed where no action allows it."""
    return [r for r in requests if r.error and not allowed(r, windows)]


def allowed(r: Request, windows: Sequence[Window]) -> bool:
    return any(r.rank in w.may_fail and r.began <= w.ended + GRACE_S and r.ended >= w.began for w in windows)


@dataclass(frozen=True)
class Bound:
    """`limit`: the most that the trend may rise, per hour; None: it is shown and not judged."""

    limit: float | None
    unit: str


MIB = 2.0**20
BOUNDS = {
    # the last 2000 events are kept in memory: until then each action adds some
    "resident_bytes": Bound(12 * MIB, "bytes"),
    "open_files": Bound(6.0, "files"),
    "tasks": Bound(6.0, "tasks"),
    "threads": Bound(6.0, "threads"),
    "state_dir_bytes": Bound(1 * MIB, "bytes"),
    "run_dir_entries": Bound(6.0, "entries"),
    "shm_files": Bound(6.0, "files"),
    # one line an event, and each action makes some
    "event_file_bytes": Bound(None, "bytes"),
}
LEAST_S = 180.0
"""Too short a run has no trend."""
MOST_EVENT_BYTES = 2 * 4 * MIB
QUIET_EVENT_BYTES_S = 64.0
"""What the events file may grow by in a second in which nobody does anything."""


@dataclass
class Trend:
    """One gauge over the longest life of a daemon: first and last value, rise per hour; `good` None: not judged."""

    name: str
    points: int
    first: float = 0.0
    last: float = 0.0
    per_hour: float = 0.0
    bound: float | None = None
    good: bool | None = None
    samples: list[tuple[float, float]] = field(default_factory=list, repr=False)


def trends(quiet: Sequence[Sequence[Gauges]], warm_s: float) -> list[Trend]:
    """`quiet`: the looks of each pause between two actions, which give one point. Judged is the longest life of a
    daemon, without its first `warm_s` seconds."""
    points: dict[int, list[tuple[float, dict[str, float]]]] = {}
    for looks in quiet:
        if looks and looks[0].daemon == looks[-1].daemon:
            at = median(g.at for g in looks)
            values = {name: median(g.values[name] for g in looks) for name in looks[0].values}
            points.setdefault(looks[0].daemon, []).append((at, values))
    lives = [[p for p in life if p[0] >= life[0][0] + warm_s] for life in points.values()]
    longest = max(lives, key=lambda life: life[-1][0] - life[0][0] if life else 0.0, default=[])
    lasted = longest[-1][0] - longest[0][0] if longest else 0.0
    found = []
    for name, bound in BOUNDS.items():
        series = [(at, values[name]) for at, values in longest]
        trend_ = Trend(name, len(series), bound=bound.limit)
        if series:
            trend_.samples = [(round(at - series[0][0], 1), value) for at, value in series]
            trend_.first, trend_.last, trend_.per_hour = series[0][1], series[-1][1], 3600 * trend(series)
        if bound.limit is not None and lasted >= LEAST_S and len(series) >= 5:
            trend_.good = trend_.per_hour <= bound.limit
        found.append(trend_)
    return found


def events_in_quiet(quiet: Sequence[Sequence[Gauges]]) -> float:
    """Bytes a second that the events file grew by in all pauses together."""
    spans = [
        (looks[-1].at - looks[0].at, looks[-1].values["event_file_bytes"] - looks[0].values["event_file_bytes"])
        for looks in quiet
        if len(looks) > 1
    ]
    seconds = sum(s for s, _ in spans)
    return sum(b for _, b in spans) / seconds if seconds else 0.0
