"""`python -m bench.growth`: what grows, and how fast, with components and with nodes.

Exit 0: nothing grows faster than linearly for a node, and a quiet cluster writes nothing but the nodes' own keys;
1: something does, or could not be judged; 2: bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.growth_real import cluster, processes, repeated
from bench.growth_worlds import STAGES, board_bytes, make, one_word, round_of, routing_of
from bench.slopes import steepest
from yrnode.node.shared import REPEAT_EACH_S, REPEAT_S

COMPONENTS = (1, 10, 50, 100, 200, 500)
NODES = (8, 64, 256, 1024, 4096)
PROCESSES = (1, 10, 50, 100, 200, 300)
REAL_NODES = (8, 16, 32, 64, 128, 256)
QUIET_S = 10.0
STEEPEST = 1.25
"""Linear, with what caches and collectors of a bigger heap add. A square is 2."""
CONSTANT = 0.15
PLAUSIBLE = (0.5, 20.0)
"""Requests of a quiet node per second: it asks for its lease and its watches; a broken meter shows 0."""
SQUARE = 4.0
"""Twice the nodes: each twice as many words to read."""

Table = list[dict[str, Any]]


def timed(what: str, sizes: Sequence[int], work: Callable[[int], Callable[[], object]]) -> dict[str, Any]:
    """One row: CPU milliseconds by size."""
    return _row(what, "ms", {n: 1000 * repeated(work(n)) for n in sizes})


def _row(what: str, unit: str, by_size: Mapping[int, float], limit: float | None = STEEPEST) -> dict[str, Any]:
    """`limit`: what the exponent may be; None: it is shown and not judged."""
    points = [(float(n), value) for n, value in by_size.items() if value > 0]
    found = round(steepest(points), 2) if len(points) > 1 else None
    good = None if limit is None or found is None else found <= limit
    return {"what": what, "unit": unit, "by_size": dict(by_size), "exponent": found, "limit": limit, "good": good}


def world_bytes(nodes: int) -> float:
    """What the world of one node takes in memory."""
    tracemalloc.start()
    # held until it has been measured
    world = make("quiet", nodes=nodes)
    size = tracemalloc.get_traced_memory()[0]
    del world
    tracemalloc.stop()
    return size


def decisions() -> Table:
    """The pure work of one node."""
    rows = [
        timed(f"a round, {stage}", COMPONENTS, lambda n, stage=stage: round_of(make(stage, ranks=n)))  # type: ignore[misc]
        for stage in STAGES
    ]
    return [{**row, "with": "components"} for row in rows]


def decisions_of_nodes() -> Table:
    rows = [
        timed(f"a round, {stage}", NODES, lambda n, stage=stage: round_of(make(stage, nodes=n)))  # type: ignore[misc]
        for stage in STAGES
    ]
    rows.append(timed("another node's word", NODES, lambda n: one_word(make("quiet", nodes=n))))
    rows.append(timed("who is behind the router", NODES, lambda n: routing_of(make("quiet", nodes=n))))
    rows.append(_row("the world in memory", "KiB", {n: world_bytes(n) / 1024 for n in NODES}))
    rows.append(_row("all keys in the store", "KiB", {n: board_bytes(make("quiet", nodes=n)) / 1024 for n in NODES}))
    return [{**row, "with": "nodes, made up"} for row in rows]


def of_processes() -> Table:
    found = {n: asyncio.run(processes(n)) for n in PROCESSES}

    def row(what: str, key: str, limit: float | None) -> dict[str, Any]:
        return _row(what, "ms", {n: 1000 * r[key] for n, r in found.items()}, limit)

    rows = [
        row("a start, CPU", "start_cpu", STEEPEST),
        row("a look at one's processes, CPU", "look_cpu", STEEPEST),
        row("watching all of them, CPU per second", "idle_cpu_share", None),
        # the loop sees it by a pidfd; what other programs take of the cores is in it
        row("a death seen after, median", "death_seen", None),
    ]
    return [{**row, "with": "real processes"} for row in rows]


def of_nodes(until: float, sizes: Sequence[int]) -> tuple[Table, list[str]]:
    """The rows, and what is broken or was left out. A size that would not end in time is left out."""
    found: dict[int, dict[str, Any]] = {}
    notes, took = [], 0.0
    for n in sizes:
        left = until - time.monotonic()
        if left < (SQUARE * max(0.0, took - QUIET_S) + QUIET_S if took else 30.0):
            notes.append(f"left out for lack of time: {n} real nodes")
            break
        began = time.monotonic()
        one = cluster(n, QUIET_S, max(30.0, left - QUIET_S))
        took = time.monotonic() - began
        if one is None:
            notes.append(f"left out: {n} real nodes were not at rest in time")
            break
        _say(f"{n} real nodes: {took:.0f} s")
        found[n] = one
        most = n * (1 + QUIET_S / max(REPEAT_S[0], REPEAT_EACH_S * n))
        if one["other_writes"]:
            notes.append(
                f"BROKEN: {n} quiet nodes wrote {len(one['other_writes'])} keys: {str(one['other_writes'])[:200]}"
            )
        if not PLAUSIBLE[0] <= one["requests_per_node_s"] <= PLAUSIBLE[1]:
            notes.append(f"BROKEN: {one['requests_per_node_s']:.2f} requests a second of one of {n} quiet nodes")
        if one["puts"] > most:
            notes.append(f"BROKEN: {n} quiet nodes put {one['puts']} keys, where {most:.0f} are the most")
    by = {key: {n: r[key] for n, r in found.items()} for key in next(iter(found.values()), {})}
    if not by:
        return [], [*notes, "BROKEN: no real nodes were judged"]
    rows = [
        _row("requests of a quiet node, per second", "", by["requests_per_node_s"], CONSTANT),
        _row("puts of the whole quiet cluster, per second", "", by["puts_per_s"], None),
        _row("etcd's CPU for a quiet node, ms per second", "", _times(by["etcd_cpu_per_node"], 1000), None),
        _row("a quiet node's CPU, ms per second", "", _times(by["node_cpu"], 1000), None),
        _row("etcd's memory", "MiB", _times(by["etcd_bytes"], 2**-20)),
        _row("a restart of all, read by all: CPU of a node", "ms", _times(by["restart_node_cpu"], 1000)),
        _row("a restart of all: until the last has stopped", "ms", _times(by["last_stop_s"], 1000), None),
    ]
    return [{**row, "with": "real nodes, one etcd"} for row in rows], notes


def unjudged(rows: Table) -> list[str]:
    """What has a limit, and not two sizes to be held to it."""
    return [r["what"] for r in rows if r["limit"] is not None and r["good"] is None]


def _times(values: Mapping[int, float], factor: float) -> dict[int, float]:
    return {n: factor * v for n, v in values.items()}


def text(rows: Table) -> str:
    """Tables, one for each kind of thing that there are more and more of."""
    lines = []
    for kind in dict.fromkeys(r["with"] for r in rows):
        of_it = [r for r in rows if r["with"] == kind]
        sizes = sorted({n for r in of_it for n in r["by_size"]})
        lines += ["", f"| {kind} | {' | '.join(map(str, sizes))} | grows as n^ | |", "|---" * (len(sizes) + 3) + "|"]
        lines += [_line(r, sizes) for r in of_it]
    return "\n".join(lines[1:])


def _line(r: dict[str, Any], sizes: Sequence[int]) -> str:
    cells = [f"{r['by_size'][n]:.3g}" if n in r["by_size"] else "" for n in sizes]
    cells.append("" if r["exponent"] is None else str(r["exponent"]))
    cells.append("" if r["good"] is None else f"{'≤' if r['good'] else 'TOO FAST: >'} {r['limit']:g}")
    return f"| {r['what']}{', ' + r['unit'] if r['unit'] else ''} | {' | '.join(cells)} |"


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=540.0, help="for all of it; what takes longer is left out (540)"
    )
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=REAL_NODES, metavar="N", help="sizes with real nodes; one: not judged"
    )
    parser.add_argument("--json", type=Path, help="write the figures there too")
    args = parser.parse_args()
    if args.seconds <= 0:
        parser.error("--seconds is above 0")
    if min(args.nodes) < 2:
        parser.error("--nodes are 2 or more")
    until = time.monotonic() + args.seconds
    # a node is some connections, and the processes that hold a hundred nodes each inherit this
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows: Table = []
    for name, part in (("rounds", decisions), ("nodes", decisions_of_nodes), ("processes", of_processes)):
        _say(f"{name} …")
        rows += part()
    _say("real nodes …")
    more, notes = of_nodes(until, args.nodes)
    rows += more
    broken = [r["what"] for r in rows if r["good"] is False] + [n for n in notes if n.startswith("BROKEN")]
    if len(args.nodes) > 1:
        broken += [f"{what} (not judged)" for what in unjudged(rows)]
    print(text(rows), *notes, sep="\n")
    print(f"not good: {', '.join(broken)}" if broken else "nothing grows faster than it may")
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "notes": notes, "broken": broken}, indent=1))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
