"""`yrnode kv-check`: set on one node's worker, get on another's, and how fast that is."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yrnode.cli.errors import NotGood
from yrnode.model.errors import UsageError
from yrnode.model.units import format_size, parse_size

if TYPE_CHECKING:
    from yrnode.checks.kv_pair import Ask
    from yrnode.config.cluster import Cluster

INTERRUPTED = 130


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="setter", metavar="NODE", help="whose worker is set on; else this node's")
    parser.add_argument("--to", dest="getter", metavar="NODE", help="whose worker is asked; else the next node's")
    parser.add_argument("--sizes", default="4KB,1MB", metavar="SIZE,…", help="of the values; else 4KB,1MB")
    parser.add_argument("--count", type=int, default=32, metavar="N", help="keys of each size; else 32")
    parser.add_argument("--concurrency", type=int, default=1, metavar="N", help="calls at a time; else 1")


def run(args: argparse.Namespace) -> int:
    """0 if every value came back as it was set, 1 if not, 130 after Ctrl-C; the keys are deleted in any case."""
    from yrnode.config.load import load
    from yrnode.config.node import this_node

    cluster = load(args.config)
    setter = _node(cluster, "--from", args.setter) if args.setter else this_node(cluster, args.node)
    getter = _node(cluster, "--to", args.getter) if args.getter else _next(cluster, setter)
    with tempfile.TemporaryDirectory(prefix="yrnode-kv-check-") as logs:
        found = asyncio.run(_measured(_ask(args, cluster, setter, getter, Path(logs))))
    if found is None:
        return INTERRUPTED
    sizes, left = found
    good = all(size.good for size in sizes)
    report = {
        "good": good,
        "from": setter,
        "to": getter,
        "same_worker": setter == getter,
        "sizes": [size.as_dict() for size in sizes],
        "not_deleted": left,
    }
    print(json.dumps(report) if args.output == "json" else "\n".join(text(report)))
    return 0 if good else 1


def _node(cluster: Cluster, flag: str, name: str) -> str:
    from yrnode.config.report import meant

    if name not in cluster.nodes:
        raise UsageError(f"kv-check: {flag} {name}: there is no such node; {meant(name, cluster.nodes)}")
    return name


def _next(cluster: Cluster, node: str) -> str:
    """The node after it in the file, the first after the last; itself where it is alone."""
    names = list(cluster.nodes)
    return names[(names.index(node) + 1) % len(names)]


def _ask(args: argparse.Namespace, cluster: Cluster, setter: str, getter: str, logs: Path) -> Ask:
    from yrnode.checks.kv_pair import MOST_AT_ONCE, Ask, too_much
    from yrnode.components import environment, proxies
    from yrnode.components.datasystem import sdk_python
    from yrnode.config.layout import worker_address

    try:
        sizes = tuple(parse_size(word.strip()) for word in args.sizes.split(","))
    except ValueError as e:
        raise UsageError(f"kv-check: --sizes: {e}") from None
    if min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise UsageError("kv-check: --sizes: write different sizes of at least 1B")
    if args.count < 1:
        raise UsageError(f"kv-check: --count {args.count}: write 1 or more")
    if not 1 <= args.concurrency <= MOST_AT_ONCE:
        raise UsageError(f"kv-check: --concurrency {args.concurrency}: write 1 to {MOST_AT_ONCE}; each is a process")
    why = too_much(sizes, args.count, cluster.datasystem.shared_memory)
    if why:
        raise UsageError(f"kv-check: {why}")
    dscli = environment.find_program(cluster.bin.dscli, os.environ)
    env = environment.with_program(proxies.direct(cluster, environment.base(os.environ)), dscli)
    return Ask(
        worker_address(cluster, setter),
        worker_address(cluster, getter),
        sizes,
        args.count,
        args.concurrency,
        sdk_python(dscli),
        {**env, "DATASYSTEM_CLIENT_LOG_DIR": str(logs)},
        logs / "helper.log",
    )


async def _measured(ask: Ask) -> Any:
    """What came of it, None where somebody has interrupted it."""
    from yrnode.checks.kv_pair import Broken, measure

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(measure(ask))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None
    except Broken as e:
        raise NotGood(f"kv-check: {e}") from None


def text(report: dict[str, Any]) -> list[str]:
    """What was asked of whom, and a row for each size."""
    from yrnode.cli.table import plain, table

    where = f"set on {report['from']}, got on {report['to']}"
    if report["same_worker"]:
        where = f"set and got on {report['from']}: one worker, so that nothing went over the network"
    titles = ("size", "keys", "hits", "missed", "differ", "failed", "set p50 ms", "p99 ms", "get p50 ms", "p99 ms")
    rows = [
        (
            format_size(s["size"]),
            *(s[k] for k in ("keys", "hits", "missed", "differ", "failed")),
            *(s[k][p] for k in ("set_ms", "get_ms") for p in ("p50", "p99")),
        )
        for s in report["sizes"]
    ]
    errors = [f"{format_size(s['size'])}: {plain(s['error'])}" for s in report["sizes"] if s["error"]]
    left = [f"{report['not_deleted']} keys could not be deleted; they expire"] if report["not_deleted"] else []
    return [where, *table(titles, rows), *errors, *left, "good" if report["good"] else "NOT GOOD"]
