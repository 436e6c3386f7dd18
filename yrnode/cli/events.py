"""`yrnode events`: what happened, with causes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from yrnode.cli import reader
from yrnode.cli.client import Client
from yrnode.cli.errors import Down
from yrnode.cli.numbers import count
from yrnode.cli.place import Place, find
from yrnode.cli.table import plain

_RETRY_S = 0.5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", dest="follow", action="store_true", help="go on with new events, until Ctrl-C")
    parser.add_argument("--since", type=int, metavar="N", help="all events after number N")
    parser.add_argument("-n", type=count, default=50, metavar="N", help="the last N (50), unless --since is given")


def run(args: argparse.Namespace) -> int:
    """0; 1 if the daemon does not run and has left no events file. JSON is one object a line."""
    place = find(args)
    client = Client(place)
    try:
        events = client.read(f"/events?since={max(args.since or 0, 0)}")
    except Down as e:
        events = _from_file(place, args.since or 0)
        if not events and not args.follow:
            raise
        print(f"{e}; these events are from its file", file=sys.stderr)
    if args.since is None:
        events = events[-args.n :] if args.n > 0 else []
    _show(events, args.output)
    if args.follow:
        reader.end_with_it()
        _follow(client, events[-1]["seq"] if events else max(args.since or 0, 0), args.since or 0, args.output)
    return 0


def _from_file(place: Place, since: int) -> list[dict[str, Any]]:
    from yrnode.telemetry import event_file

    events = event_file.read_events(place.state_dir / event_file.NAME, 2000)
    return [e.as_dict() for e in events if e.seq > since]


def _follow(client: Client, seen: int, after: int, output: str) -> None:
    """For ever, over restarts of the daemon; what happened in between is not lost. `after`: the number asked for."""
    told = False
    while True:
        try:
            for event in client.stream(f"/events?since={seen}"):
                told = False
                if event is not None:
                    _show([event] if event["seq"] > after else [], output)
                    seen = event["seq"]
        except Down as e:
            if not told:
                print(f"{e}; waiting for it", file=sys.stderr)
            told = True
        time.sleep(_RETRY_S)


def _show(events: Iterable[dict[str, Any]], output: str) -> None:
    for event in events:
        print(json.dumps(event) if output == "json" else line(event))
    sys.stdout.flush()


def line(event: dict[str, Any]) -> str:
    """One event for people: time and number, then the same words as in the daemon's log."""
    from dataclasses import fields

    from yrnode.model.event import Event

    known = {f.name for f in fields(Event)}
    words = Event(**{k: v for k, v in event.items() if k in known}).line()
    at = datetime.fromtimestamp(event["at"], timezone.utc).isoformat(timespec="milliseconds")
    return f"{at} #{event['seq']} {plain(words)}"
