"""`yrnode drain`: takes this node's groups out of the router, waits for their requests, and stops them here."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from yrnode.cli.client import Client
from yrnode.cli.control import agreed, kept, reach
from yrnode.cli.errors import NotGood
from yrnode.cli.place import find
from yrnode.cli.table import plain
from yrnode.model.errors import UsageError
from yrnode.model.units import parse_duration

_PERIOD_S = 0.5
_RESTING = ("stopped", "failed")
_STOP_S = 300.0
"""What the stop itself may take, on top of the drain."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout", default="5m", metavar="TIME", help="how long requests may take to finish, such as 90s; else 5m"
    )
    parser.add_argument("--why", default="", metavar="TEXT", help="kept in the events")
    parser.add_argument("--dry-run", action="store_true", help="say what it would touch, and do nothing")


def run(args: argparse.Namespace) -> int:
    """0 once all of it has stopped with nothing left to finish, or there was nothing to do; 1 where requests were
    cut, or where the next daemon would not know it. The drain goes on when this command is interrupted."""
    try:
        seconds = parse_duration(args.timeout)
    except ValueError as e:
        raise UsageError(f"drain: --timeout: {e}") from None
    place = find(args)
    client = Client(place)
    since = _last(client)
    target = client.read("/status")["node"]
    body = {"target": target, "why": args.why, "timeout_s": seconds}
    radius = client.post("/control/drain", {**body, "dry_run": True})
    as_json = args.output == "json"
    out = sys.stderr if as_json else sys.stdout
    said, nothing = _radius(radius, args.timeout), not radius["components"]
    if not agreed(args, radius, said, f"drain {target}", sure=args.yes, nothing=nothing):
        return 0
    radius = client.post("/control/drain", {**body, "dry_run": False})
    not_kept = kept("drain", radius)
    event = _follow(client, radius["components"], since, seconds, out)
    finished = event["what"] == "drained"
    if as_json:
        print(json.dumps({**radius, "finished": finished, "why": event["text"]}))
    else:
        print(plain(f"{target}: stopped; {event['text']}"))
    return not_kept if finished else 1


def _radius(radius: dict[str, Any], timeout: str) -> list[str]:
    names = radius["components"]
    if not names:
        return [f"drain {radius['target']}: nothing to do"]
    lines = [
        f"drain {radius['target']}: stops {', '.join(names)}, when their requests are finished or after {timeout}"
    ]
    if radius["router"]:
        lines.append(f"  out of the router, at once: {', '.join(radius['router'])}")
    else:
        lines.append("  no router that yrnode can tell: take these ranks out of yours now")
    lines += reach(radius)
    if radius["others"]:
        groups, others = ", ".join(radius["groups"]), ", ".join(radius["others"])
        lines.append(f"  a group stops as a whole: {groups} stops on {others} too, and waits for {radius['target']}")
    lines.append(f"  and back: yrnode start {radius['target']}")
    return lines


def _follow(client: Client, names: list[str], since: int, seconds: float, out: Any) -> dict[str, Any]:
    """The event that ended the drain, once all of these components rest."""
    deadline, told = time.monotonic() + seconds + _STOP_S, ""
    event: dict[str, Any] | None = None
    while time.monotonic() < deadline:
        status = client.read("/status")
        if event is None:
            found = [e for e in client.read(f"/events?since={since}") if e["what"] in ("drained", "drain-timeout")]
            event = found[-1] if found else None
        drain = status.get("drain")
        line = _words(drain) if drain else told
        if line != told:
            print(plain(line), file=out, flush=True)
            told = line
        components = status["components"]
        if event is not None and all(components[n]["state"] in _RESTING for n in names if n in components):
            return event
        if event is None and drain is None and told:
            raise NotGood("drain: somebody has said something else meanwhile, see yrnode events")
        time.sleep(_PERIOD_S)
    raise NotGood("drain: it has not stopped in time; it goes on, see yrnode status")


def _words(drain: dict[str, Any]) -> str:
    if not drain["out_of_router"]:
        return f"not yet out of the router: {drain['evidence']}"
    if drain["unfinished"] is None:
        return f"requests to finish: not known: {drain['evidence']}"
    return f"requests to finish: {drain['unfinished']}"


def _last(client: Client) -> int:
    """The number of the newest event."""
    return max((int(e["seq"]) for e in client.read("/events?since=0")), default=0)
