"""`yrnode probe live|ready`: an exit code for an outside prober."""

from __future__ import annotations

import argparse
import json
from typing import Any

from yrnode.cli.client import Client
from yrnode.cli.errors import Late, NotGood
from yrnode.cli.place import find, quick
from yrnode.cli.table import plain

_TIMEOUT_S = 2.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=("live", "ready"),
        help="live: 1 only when something has failed for good or yrnode is dead; ready: 0 when this node serves",
    )


def run(args: argparse.Namespace) -> int:
    """0 or 1, after a few seconds at most whatever the engines do: the daemon tells what it has seen."""
    try:
        client = Client(quick(args) or find(args), _TIMEOUT_S)
        why = _live(client) if args.what == "live" else _ready(client)
    except NotGood as e:
        why = [str(e)]
    if args.output == "json":
        print(json.dumps({args.what: not why, "reasons": why}))
    else:
        print(plain(f"not {args.what}: {'; '.join(why)}" if why else args.what))
    return 1 if why else 0


def _live(client: Client) -> list[str]:
    """A daemon that has no room for one more question is alive: only its own word, or none at all, says otherwise."""
    _, said = client.get("/livez")
    if isinstance(said, dict) and said.get("alive") is False:
        return ["yrnode's loop makes no rounds; restart yrnode"]
    try:
        code, status = client.get("/status")
    except Late:
        return []
    components: dict[str, Any] = status["components"] if code == 200 else {}
    return [f"{name} is failed: {c['reason']}" for name, c in components.items() if c["state"] == "failed"]


def _ready(client: Client) -> list[str]:
    code, answer = client.get("/readyz")
    return [] if code == 200 else answer.get("reasons") or [answer.get("error") or f"/readyz answers {code}"]
