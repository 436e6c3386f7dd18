"""`yrnode drill`: inject one fault into a running stack, and report what it cost."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from yrnode.cli.client import Client
from yrnode.cli.control import agreed, reach, touches
from yrnode.cli.errors import Down, NotGood
from yrnode.cli.numbers import seconds
from yrnode.cli.place import find
from yrnode.cli.table import span
from yrnode.model.errors import UsageError

DRILLS = {
    "kill": "SIGKILL to the target's main process",
    "freeze": "SIGSTOP to all its processes",
    "hang": "SIGSTOP to a rank's engine core",
    "spin": "a stand-in rank's engine core burns CPU and does nothing",
    "store-down": "etcd away for some seconds",
    "store-empty": "etcd comes back without its data, which is kept beside",
    "daemon-kill": "SIGKILL to yrnode itself; something must start it again",
}
_LOOK_S = 0.1
_SEEN = ("stop", "unhealthy", "bump", "unavailable")
_USUAL = {"store-down": "etcd", "store-empty": "etcd", "daemon-kill": "yrnode"}
"""The target where none is named."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("drill", choices=tuple(DRILLS), help="; ".join(f"{k}: {v}" for k, v in DRILLS.items()))
    parser.add_argument("target", nargs="?", default="", help="a component, such as rank/serve/0")
    parser.add_argument("--why", default="", metavar="TEXT", help="kept in the events")
    parser.add_argument("--dry-run", action="store_true", help="say what it would touch, and do nothing")
    parser.add_argument("--limit", type=seconds, default=600.0, metavar="S", help="give up after S seconds (600)")


def run(args: argparse.Namespace) -> int:
    """0 if the stack is ready again and only what had to be was restarted."""
    client = Client(find(args))
    names = _ready(client)["components"]
    target = args.target or _USUAL.get(args.drill, "")
    if not target:
        raise UsageError(f"drill {args.drill}: name a component: {', '.join(names)}")
    path, body = f"/control/drill-{args.drill}", {"target": target, "why": args.why}
    radius = client.post(path, {**body, "dry_run": True})
    if not agreed(args, radius, lines(radius), f"drill {args.drill} {target}", sure=args.yes):
        return 0
    # whoever was asked has taken his time
    before = _ready(client)
    if args.drill == "daemon-kill":
        result = _kill_daemon(client, lambda: client.post(path, body), before, args.limit)
    else:
        result = _drill(client, client.post(path, body), before, args.limit)
    print(json.dumps(result) if args.output == "json" else "\n".join(_text(result)))
    return 0 if result["passed"] else 1


def _ready(client: Client) -> dict[str, Any]:
    status: dict[str, Any] = client.read("/status")
    if not status["ready"]:
        raise NotGood("a drill needs a stack that is ready; see yrnode status")
    return status


def lines(radius: dict[str, Any]) -> list[str]:
    """What is done, and what will restart of it: here, elsewhere, and for how long."""
    drill = radius["drill"]
    what = f"drill {drill} {radius['target']}: {DRILLS[drill]}"
    if drill == "daemon-kill":
        return [what, "  restarts nothing that runs; nobody heals it till yrnode runs again", *reach(radius)]
    usual = radius.get("usual_s")
    took = f"usually {span(usual)}, once it is seen" if usual is not None else "not known, see yrnode events"
    return [what, f"  restarts {touches(radius)}", *reach(radius), f"  until it is ready: {took}"]


def _drill(client: Client, radius: dict[str, Any], before: dict[str, Any], limit: float) -> dict[str, Any]:
    drill, target, began = radius["drill"], radius["target"], radius["seq"]
    # those of a group that restarts with it are neither named nor left alone
    expected, about = set(before["components"]) - set(radius["untouched"]), radius["seen_at"]
    deadline = time.monotonic() + limit
    seen = ready = None
    at = None
    while ready is None and time.monotonic() < deadline:
        events = client.read(f"/events?since={began - 1}")
        at = next((e["at"] for e in events if e["seq"] == began), at)
        if seen is None:
            seen = next((e for e in events if e["seq"] > began and e["target"] in about and e["what"] in _SEEN), None)
        if seen is not None:
            ready = _settled(client, events, seen["seq"], expected, before)
        time.sleep(_LOOK_S)
    after = client.read("/status")
    return _result(drill, target, before, after, expected, _ms(at, seen), _ms(at, ready))


def _settled(
    client: Client, events: list[dict[str, Any]], since: int, expected: set[str], before: dict[str, Any]
) -> dict[str, Any] | None:
    """The event of being ready after all that had to restart did."""
    status = client.read("/status")
    changed = {n for n, c in status["components"].items() if c["instance"] != before["components"][n]["instance"]}
    if not status["ready"] or not expected <= changed:
        return None
    return next(
        (e for e in reversed(events) if e["seq"] > since and e["what"] == "ready" and e["target"] == "yrnode"), None
    )


def _kill_daemon(client: Client, note: Callable[[], object], before: dict[str, Any], limit: float) -> dict[str, Any]:
    """The daemon is who listens on the control socket: a file may name a process that is long gone. `note()`: it
    writes down who will kill it."""
    pid = client.daemon_pid()
    fd = os.pidfd_open(pid)
    try:
        note()
        if client.daemon_pid() != pid:
            raise NotGood("yrnode was restarted just now; try again")
        began = time.monotonic()
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)
    seen = ready = None
    after = before
    while ready is None and time.monotonic() - began < min(limit, 120.0):
        time.sleep(_LOOK_S)
        with contextlib.suppress(Down, NotGood):
            after = client.read("/status")
            if after["started_at"] != before["started_at"]:
                seen = seen or (time.monotonic() - began) * 1000
                ready = (time.monotonic() - began) * 1000 if after["ready"] else None
    result = _result("daemon-kill", "yrnode", before, after, set(), seen, ready)
    if seen is None:
        result["why"] = "nothing has started yrnode again; run it under systemd, or with --init"
    return result


def _ms(at: float | None, event: dict[str, Any] | None) -> float | None:
    return None if at is None or event is None else round((event["at"] - at) * 1000, 1)


def _result(
    drill: str,
    target: str,
    before: dict[str, Any],
    after: dict[str, Any],
    expected: set[str],
    detected: float | None,
    recovered: float | None,
) -> dict[str, Any]:
    names = list(before["components"])
    restarted = [n for n in names if after["components"][n]["instance"] != before["components"][n]["instance"]]
    why = ""
    if detected is None:
        why = "it was not seen in time"
    elif recovered is None:
        why = "the stack did not become ready in time: " + "; ".join(after["reasons"])
    elif set(restarted) != expected:
        why = f"restarted {', '.join(restarted) or 'nothing'}, expected {', '.join(sorted(expected)) or 'nothing'}"
    return {
        "drill": drill,
        "target": target,
        "detected_ms": detected,
        "recovered_ms": recovered,
        "restarted": restarted,
        "untouched": [n for n in names if n not in restarted],
        "passed": not why,
        "why": why,
    }


def _text(result: dict[str, Any]) -> list[str]:
    def ms(value: float | None) -> str:
        return "never" if value is None else f"after {value:.0f} ms"

    return [
        f"drill {result['drill']} {result['target']}: {'passed' if result['passed'] else 'FAILED: ' + result['why']}",
        f"  seen {ms(result['detected_ms'])}, ready again {ms(result['recovered_ms'])}",
        f"  restarted: {', '.join(result['restarted']) or 'nothing'}",
        f"  untouched: {', '.join(result['untouched']) or 'nothing'}",
    ]
