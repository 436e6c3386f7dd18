"""`yrnode status`: what runs, what does not, and why."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from yrnode.cli import reader
from yrnode.cli.client import Client
from yrnode.cli.errors import Down
from yrnode.cli.place import find
from yrnode.cli.table import ago, cut, plain, table

_PERIOD_S = 1.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="show it again each second, until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    """0 if the node is ready, 1 if not or if the daemon does not run."""
    client = Client(find(args))
    if args.watch:
        reader.end_with_it()
        return _watch(client, args.output)
    status = client.read("/status")
    print(json.dumps(status) if args.output == "json" else "\n".join(text(status)))
    return 0 if status["ready"] else 1


def _watch(client: Client, output: str) -> int:
    # home and erase below, line by line: a full clear would flicker
    home, below, rest = ("\x1b[H\x1b[2J\x1b[H", "\x1b[K\n", "\x1b[J") if sys.stdout.isatty() else ("", "\n", "\n")
    while True:
        try:
            status = client.read("/status")
            lines = [json.dumps(status)] if output == "json" else text(status)
        except Down as e:
            lines = [json.dumps({"ready": False, "error": str(e)})] if output == "json" else [str(e)]
        if output == "json":
            print(lines[0], flush=True)
        else:
            print(home + "".join(line + below for line in lines), end=rest, flush=True)
        time.sleep(_PERIOD_S)


def text(status: dict[str, Any]) -> list[str]:
    """The status as lines for people."""
    now = status["at"]
    store = status["store"]
    lines = [
        f"{status['node']} of {status['cluster']}: {'ready' if status['ready'] else 'NOT READY'}"
        f"   yrnode {status['version']}, up {ago(status['started_at'], now)}"
        f"   store {'answers' if store['available'] else 'UNAVAILABLE'} for {ago(store['since'], now)}"
    ]
    lines += [cut("  " + plain(reason)) for reason in status["reasons"]]
    lines += _drain(status.get("drain"))
    lines += _refusal(store.get("refuses_writes"), now)
    lines += _frozen(store, now)
    lines += [cut(f"  {plain(line)}") for line in _intents(status.get("intents", {}), now)]
    lines += ["", *_components(status["components"], now)]
    if status["groups"]:
        lines += ["", *_groups(status["groups"])]
    if status.get("router"):
        lines += ["", *_router(status["router"])]
    failing = _failing({**status["components"], "node": {"checks": status.get("node_checks", {})}})
    if failing:
        lines += ["", *table(("check", "verdict", "age", "evidence"), failing)]
    return lines


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


def _components(components: dict[str, Any], now: str) -> list[str]:
    rows = [
        (name, c["state"], ago(c["since"], now), c["pid"], c["restarts"], c["generation"] or None, c["reason"])
        for name, c in components.items()
    ]
    return table(("component", "state", "for", "pid", "restarts", "gen", "reason"), rows)


def _groups(groups: dict[str, Any]) -> list[str]:
    rows = [
        (name, g["stage"], g["generation"], " ".join(g["phases"].values()), ", ".join(g["waiting_for"]), g["cause"])
        for name, g in groups.items()
    ]
    return table(("group", "stage", "gen", "here", "waits for", "cause"), rows)


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
