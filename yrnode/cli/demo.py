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
READY_WITH_MODEL_S = 600.0
LOOK_S = 0.1
SHOW_S = 0.5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="start, verify, print, stop")
    parser.add_argument("--model", metavar="DIR", help="a real vLLM (from PATH) with this model instead of stand-ins")
    parser.add_argument("extra", nargs="*", metavar="-- FLAG", help="with --model: more flags of vllm serve")


class _Interrupted(Exception):
    pass


def run(args: argparse.Namespace) -> int:
    from yrnode.demo.stack import Stack

    if args.extra and not args.model:
        raise UsageError("flags for vllm serve need --model")
    if args.model and not Path(args.model).is_dir():
        raise UsageError(f"--model {args.model}: no such directory; give the directory of the model's weights")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    stack = Stack(Path(args.model) if args.model else None, args.extra)
    limit = READY_WITH_MODEL_S if args.model else READY_S
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


def _client(stack: Stack) -> Client:
    from yrnode.cli.client import Client
    from yrnode.cli.place import find

    return Client(find(argparse.Namespace(config=str(stack.config), node=stack.node)))


def _once(stack: Stack, output: str, limit: float) -> int:
    from yrnode.cli import verify

    began = stack.start()
    _say(f"yrnode demo: starting in {stack.dir}")
    status = _until_ready(stack, began + limit)
    took = round(time.monotonic() - began, 2)
    report = verify.verify(str(stack.config), stack.node) if status["ready"] else None
    _quietly()
    stopped = stack.stop()
    left = stack.left_over() + ([] if stopped else ["the daemon did not stop in order"])
    why = [] if status["ready"] else status["reasons"]
    left += stack.remove()
    good = bool(report and report.good and not left)
    result = {
        "ready": status["ready"],
        "ready_seconds": took if status["ready"] else None,
        "components": {
            name: {k: c[k] for k in ("plane", "state", "ready_seconds", "restarts", "generation", "reason")}
            for name, c in status["components"].items()
        },
        "verify": {
            "completion": bool(report and report.completion),
            "external_cache_hits": report.external_hits if report else 0,
        },
        "left_over": left,
        "reasons": why,
    }
    print(json.dumps(result) if output == "json" else "\n".join(_text(result)))
    return 0 if good else 1


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


def _until_ready(stack: Stack, deadline: float) -> dict[str, Any]:
    """The status when ready, or the last one at the deadline or once something is failed for good."""
    client = _client(stack)
    status: dict[str, Any] = {"ready": False, "reasons": ["the daemon did not answer"], "components": {}}
    while time.monotonic() < deadline:
        _still_there(stack)
        with contextlib.suppress(Down, NotGood):
            status = client.read("/status")
            if status["ready"] or any(c["state"] == "failed" for c in status["components"].values()):
                break
        time.sleep(LOOK_S)
    return status


def _still_there(stack: Stack) -> None:
    code = stack.exit_code
    if code is not None:
        raise (UsageError if code == 2 else NotGood)(stack.last_line())


def _live(stack: Stack) -> int:
    stack.start()
    print(f"beside it: yrnode status --config {stack.config}", flush=True)
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


def _show(stack: Stack) -> None:
    """The table on a terminal, the daemon's own lines elsewhere, until interrupted or the daemon ends."""
    from yrnode.cli import status

    client, seen = _client(stack), 0
    tty = sys.stdout.isatty()
    while True:
        _still_there(stack)
        if tty:
            with contextlib.suppress(Down, NotGood):
                lines = [f"beside it: yrnode status --config {stack.config}    Ctrl-C stops", ""]
                lines += status.text(client.read("/status"))
                body = "".join(f"{line}\x1b[K\n" for line in lines)
                print(f"\x1b[H{body}\x1b[J", end="", flush=True)
        else:
            with open(stack.output, "rb") as f:
                f.seek(seen)
                new = f.read()
            seen += len(new)
            print(new.decode("utf-8", "replace"), end="", flush=True)
        time.sleep(SHOW_S)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
