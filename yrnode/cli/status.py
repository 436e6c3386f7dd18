"""`yrnode status`: what runs, what does not, and why."""

from __future__ import annotations

import argparse
import json
from typing import Any

from yrnode.cli import nodes
from yrnode.cli.client import Client
from yrnode.cli.place import find
from yrnode.cli.table import ago, cut, plain, span, table


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        action="store_true",
        help="a table that stays, until Ctrl-C; not on a terminal, a line for each change",
    )


def run(args: argparse.Namespace) -> int:
    """0 if the node is ready, 1 if not or if the daemon does not run."""
    place = find(args)
    if args.watch:
        from yrnode.cli.watch import watch

        return watch(place, args.output)
    client = Client(place)
    status = client.read("/status")
    print(json.dumps(status) if args.output == "json" else "\n".join(text(status)))
    return 0 if status["ready"] else 1


def text(status: dict[str, Any]) -> list[str]:
    """The status as lines for people."""
    now = status["at"]
    store = status["store"]
    lines = [
        f"{status['node']} of {status['cluster']}: {'ready' if status['ready'] else 'NOT READY'}"
        f"   yrnode {status['version']}, up {ago(status['started_at'], now)}"
        f"   store {'answers' if store['available'] else 'UNAVAILABLE'} for {ago(store['since'], now)}"
    ]
    lines += [*notes(status), "", *_components(status["components"], now)]
    if status["groups"]:
        lines += ["", *_groups(status["groups"])]
    if peers := nodes.peers(status):
        lines += ["", *table(nodes.PEERS, peers)]
    if status.get("router"):
        lines += ["", *_router(status["router"])]
    failing = _failing({**status["components"], "node": {"checks": status.get("node_checks", {})}})
    if failing:
        lines += ["", *table(("check", "verdict", "age", "evidence"), failing)]
    return lines


def notes(status: dict[str, Any]) -> list[str]:
    """Why it is not ready, and what people should know of beside."""
    now, store = status["at"], status["store"]
    return [
        *(cut("  " + plain(reason)) for reason in status["reasons"]),
        *_drain(status.get("drain")),
        *_refusal(store.get("refuses_writes"), now),
        *_frozen(store, now),
        *(cut(f"  {plain(line)}") for line in _intents(status.get("intents", {}), now)),
    ]


def _refusal(refusal: dict[str, Any] | None, now: str) -> list[str]:
    """Whole lines, for they are to be copied."""
    if refusal is None:
        return []
    words = f"  store REFUSES WRITES for {ago(refusal['since'], now)}: {plain(refusal['evidence'])}"
    frozen = "until it takes them no worker is started or restarted"
    return [f"{words}; {frozen}", *(f"    {plain(line)}" for line in refusal["cure"])]


def _frozen(store: dict[str, Any], now: str) -> list[str]:
    """What waits, while the nodes cannot decide together."""
    if not store.get("frozen"):
        return []
    since = f" for {ago(store['frozen_since'], now)}" if store["frozen_since"] else ""
    return [cut(f"  FROZEN{since}: {plain(store['frozen_why'])}"), *(cut(f"    {plain(x)}") for x in store["frozen"])]


def _intents(intents: dict[str, Any], now: str) -> list[str]:
    """What people have asked for and may have forgotten."""
    words = {t: "PAUSED (nothing heals by itself)" if i["paused"] else "kept stopped" for t, i in intents.items()}
    return [f"{t} {words[t]} for {ago(i['at'], now)}, from {i['by']}: {i['why']}" for t, i in intents.items()]


def why(of: dict[str, Any]) -> str:
    """A component's reason or a group's cause, after how far its start is."""
    return "; ".join(filter(None, (progress(of.get("progress")), of.get("reason") or of.get("cause"))))


def progress(p: dict[str, Any] | None) -> str:
    """How far a start is, and what it usually takes; empty where nothing is under way or known of it."""
    if not p:
        return ""
    taken = f"{p['what']} {span(p['elapsed_s'])}"
    if p["usual_s"] is not None:
        taken += f", {'LATE: ' if p['late'] else ''}usually {span(p['usual_s'])}"
    return ": ".join(filter(None, (taken, p["doing"])))


def _components(components: dict[str, Any], now: str) -> list[str]:
    rows = [
        (name, c["state"], ago(c["since"], now), c["pid"], c["restarts"], c["generation"] or None, why(c))
        for name, c in components.items()
    ]
    return table(("component", "state", "for", "pid", "restarts", "gen", "reason"), rows)


def _groups(groups: dict[str, Any]) -> list[str]:
    rows = [
        (
            name,
            g["stage"],
            g["generation"],
            nodes.phases(g["phases"]),
            nodes.few(g["waiting_for"]),
            why(g),
        )
        for name, g in groups.items()
    ]
    return table(("group", "stage", "gen", "phases", "waits for", "cause"), rows)


def _router(router: dict[str, Any]) -> list[str]:
    rows = [(m["rank"], m["node"], m["role"], m["state"], m["wanted"], m["why"]) for m in router["members"]]
    lines = [cut(f"the router's members cannot be told: {plain(router['error'])}")] if router["error"] else []
    return [
        *lines,
        *(table(("behind the router", "node", "role", "is", "should be", "because"), rows) if rows else []),
    ]


def _drain(drain: dict[str, Any] | None) -> list[str]:
    if not drain:
        return []
    many = "an unknown number of" if drain["unfinished"] is None else drain["unfinished"]
    out = "out of the router" if drain["out_of_router"] else "not yet out of the router"
    words = f"  draining: {out}, {many} requests to finish, stops in {drain['left_s']:.0f} s at the latest"
    return [cut("; ".join(filter(None, (words, plain(drain["evidence"])))))]


def _failing(components: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (f"{name} {check}", v["verdict"], f"{v['age_s']:.1f}s", v["evidence"])
        for name, c in components.items()
        for check, v in c["checks"].items()
        if v["verdict"] != "ok" and v["age_s"] is not None
    ]
