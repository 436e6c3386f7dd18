"""`yrnode cache`: hit rates of the ranks' prefix caches, of this node or of all."""

from __future__ import annotations

import argparse
import json
from typing import Any

from yrnode.cli.client import Client
from yrnode.cli.place import find
from yrnode.cli.table import plain, table
from yrnode.model.errors import UsageError
from yrnode.model.units import format_duration, parse_duration
from yrnode.policy.hits import LONGEST_S, NOT_GOOD, SHORTEST_S, Counts, total

_RATES = ("local_win", "ext_win", "eff_win", "local_total", "ext_total", "eff_total")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--window", default="60s", metavar="TIME", help="how far back a window reaches, from 10s to 15m; else 60s"
    )
    parser.add_argument("--all", action="store_true", help="ask every node of the cluster, and sum")


def run(args: argparse.Namespace) -> int:
    """0, or 1 where a rank's external cache is not asked or not there, or a node did not answer."""
    window = f"/cache?window={_window(args.window):.0f}"
    client = Client(find(args))
    answer = _everywhere(client, args, window) if args.all else client.read(window)
    print(json.dumps(answer) if args.output == "json" else "\n".join(text(answer)))
    rows = [r for node in answer.get("nodes", {"": answer}).values() for r in node.get("ranks", {}).values()]
    bad = any(r["meaning"] in NOT_GOOD for r in rows)
    return 1 if bad or any("error" in node for node in answer.get("nodes", {}).values()) else 0


def _window(given: str) -> float:
    try:
        seconds = parse_duration(given)
    except ValueError as e:
        raise UsageError(f"cache: --window: {e}") from None
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise UsageError(f"cache: --window: {given} is not from 10s to 15m; the daemon keeps 15 minutes")
    return seconds


def _everywhere(client: Client, args: argparse.Namespace, window: str) -> dict[str, Any]:
    """Every node's answer, or why there is none, and the sum of those that answered."""
    from yrnode.api.cache import rates
    from yrnode.cli.others import ask_others

    own = client.read(window)
    nodes = {own["node"]: own, **ask_others(client, args.config, window)}
    ranks = [r["tokens"] for answer in nodes.values() for r in answer.get("ranks", {}).values()]
    sums = (total(Counts(**tokens[which]) for tokens in ranks) for which in ("window", "total"))
    whole = {"cluster": own["cluster"], "window_s": own["window_s"], "nodes": dict(sorted(nodes.items()))}
    return {**whole, "all": rates(*sums)}


def text(answer: dict[str, Any]) -> list[str]:
    """A row for each rank, one for all, and the nodes that did not answer."""
    nodes = answer.get("nodes") or {answer["node"]: answer}
    rows = [
        (node, rank, *(_percent(r[k]) for k in _RATES), r["meaning"])
        for node, one in nodes.items()
        for rank, r in one.get("ranks", {}).items()
    ]
    rows.append(("", "all", *(_percent(answer["all"][k]) for k in _RATES), ""))
    window = format_duration(answer["window_s"])
    missing = [f"{node}: {plain(one['error'])}" for node, one in nodes.items() if "error" in one]
    notes = [f"win: the last {window}; total: since each rank's start; ext: of what was missing locally; eff: both"]
    return [*table(("node", "rank", *_RATES, "meaning"), rows), "", *missing, *notes]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"
