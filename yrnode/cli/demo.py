"""`yrnode demo`: a whole stack in the foreground, with a live table of what happens."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yrnode.cli.errors import Down, NotGood
from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from yrnode.cli.client import Client
    from yrnode.demo.stack import Stack

READY_S = 120.0
NODE_S = 20.0
"""More for each node, since all of them share this machine."""
READY_WITH_MODEL_S = 600.0
LOOK_S = 0.1
SHOW_S = 0.5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="start, verify, print, stop")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="so many nodes, each on a loopback address")
    parser.add_argument("--model", metavar="DIR", help="a real vLLM (from PATH) with this model instead of stand-ins")
    parser.add_argument("extra", nargs="*", metavar="-- FLAG", help="with --model: more flags of vllm serve")


class _Interrupted(Exception):
    pass


def run(args: argparse.Namespace) -> int:
    from yrnode.demo.stack import MOST_NODES, Stack

    if not 1 <= args.nodes <= MOST_NODES:
        raise UsageError(f"--nodes {args.nodes}: write a number from 1 to {MOST_NODES}")
    if args.model and args.nodes > 1:
        raise UsageError("--model runs on one node; leave --nodes out")
    if args.extra and not args.model:
        raise UsageError("flags for vllm serve need --model")
    if args.model and not Path(args.model).is_dir():
        raise UsageError(f"--model {args.model}: no such directory; give the directory of the model's weights")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    stack = Stack(Path(args.model) if args.model else None, args.extra, args.nodes)
    limit = READY_WITH_MODEL_S if args.model else READY_S + NODE_S * args.nodes
    try:
        return _once(stack, args.output, limit) if args.once else _live(stack)
    except _Interrupted:
        # before the daemon was started, or during an orderly stop: the finally below ends what there is
        return 130
    finally:
        _quietly()
        stack.stop()
        stack.remove()


def _interrupt(number: int, frame: object) -> None:
    raise _Interrupted


def _quietly() -> None:
    """From here on a stop is under way: another Ctrl-C must not cut it short."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _clients(stack: Stack) -> dict[str, Client]:
    """By node."""
    from yrnode.cli.client import Client
    from yrnode.cli.place import find

    places = {d.node: argparse.Namespace(config=str(stack.config), node=d.node) for d in stack.daemons}
    return {node: Client(find(place)) for node, place in places.items()}


def _once(stack: Stack, output: str, limit: float) -> int:
    from yrnode.cli import verify

    began = stack.start()
    _say(f"yrnode demo: starting in {stack.dir}")
    found = _until_ready(stack, began + limit)
    ready = all(s["ready"] for s in found.values())
    took = round(time.monotonic() - began, 2)
    reports = [verify.verify(str(stack.config), d.node) for d in stack.daemons] if ready else []
    _quietly()
    stopped = stack.stop()
    left = stack.left_over() + ([] if stopped else ["a daemon did not stop in order"])
    left += stack.remove()
    hits = [r.external_hits for r in reports]
    counted = [h for h in hits if isinstance(h, int)]
    result = {
        "ready": ready,
        "ready_seconds": took if ready else None,
        "components": {
            name if len(found) == 1 else f"{node} {name}": {
                k: c[k] for k in ("plane", "state", "ready_seconds", "restarts", "generation", "reason")
            }
            for node, status in found.items()
            for name, c in status["components"].items()
        },
        "verify": {
            "completion": bool(reports) and all(r.completion for r in reports),
            "external_cache_hits": sum(counted) if counted or not hits else hits[0],
        },
        "left_over": left,
        "reasons": [reason for s in found.values() if not s["ready"] for reason in s["reasons"]],
    }
    print(json.dumps(result) if output == "json" else "\n".join(_text(result)))
    return 0 if reports and all(r.good for r in reports) and not left else 1


def _text(result: dict[str, Any]) -> list[str]:
    from yrnode.cli.table import table

    rows = [(name, c["state"], c["ready_seconds"], c["reason"]) for name, c in result["components"].items()]
    cache = result["verify"]["external_cache_hits"]
    return [
        *table(("component", "state", "seconds to ready", "reason"), rows),
        "",
        f"ready: {'yes, after ' + str(result['ready_seconds']) + ' s' if result['ready'] else 'NO'}",
        *(f"  {reason}" for reason in result["reasons"]),
        f"completion on every rank: {'yes' if result['verify']['completion'] else 'NO'}",
        f"external cache hits: {cache}{' tokens' if isinstance(cache, int) else ''}",
        f"left over after the stop: {', '.join(result['left_over']) or 'nothing'}",
    ]


def _until_ready(stack: Stack, deadline: float) -> dict[str, dict[str, Any]]:
    """Each node's status: when all are ready, at the deadline, or once something is failed for good."""
    clients = _clients(stack)
    silent: dict[str, Any] = {"ready": False, "reasons": ["the daemon did not answer"], "components": {}}
    found = dict.fromkeys(clients, silent)
    while time.monotonic() < deadline:
        _still_there(stack)
        for node, client in clients.items():
            with contextlib.suppress(Down, NotGood):
                found[node] = client.read("/status")
        states = [c["state"] for s in found.values() for c in s["components"].values()]
        if all(s["ready"] for s in found.values()) or "failed" in states:
            break
        time.sleep(LOOK_S)
    return found


def _still_there(stack: Stack) -> None:
    daemon = stack.ended()
    if daemon is not None:
        raise (UsageError if daemon.exit_code == 2 else NotGood)(daemon.last_line())


def _live(stack: Stack) -> int:
    stack.start()
    print(_beside(stack), flush=True)
    try:
        _show(stack)
    except _Interrupted:
        _quietly()
        _say("yrnode demo: stopping")
    code = 0 if stack.stop() else 1
    left = stack.left_over()
    for line in left:
        _say(f"left over: {line}")
    return 1 if left else code


def _beside(stack: Stack) -> str:
    which = "" if len(stack.daemons) == 1 else f" --node {stack.daemons[-1].node}"
    return f"beside it: yrnode status --config {stack.config}{which}"


def _show(stack: Stack) -> None:
    """The table on a terminal, the daemons' own lines elsewhere, until interrupted or a daemon ends."""
    from yrnode.cli import status

    clients, seen = _clients(stack), dict.fromkeys(stack.daemons, 0)
    tty = sys.stdout.isatty()
    while True:
        _still_there(stack)
        if tty:
            lines = [f"{_beside(stack)}    Ctrl-C stops"]
            for client in clients.values():
                with contextlib.suppress(Down, NotGood):
                    lines += ["", *status.text(client.read("/status"))]
            body = "".join(f"{line}\x1b[K\n" for line in lines)
            print(f"\x1b[H{body}\x1b[J", end="", flush=True)
        else:
            for daemon in stack.daemons:
                with open(daemon.output, "rb") as f:
                    f.seek(seen[daemon])
                    new = f.read()
                seen[daemon] += len(new)
                print(new.decode("utf-8", "replace"), end="", flush=True)
        time.sleep(SHOW_S)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
