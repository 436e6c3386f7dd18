"""`yrnode start|stop|restart|pause|resume|fence TARGET`: says what it will touch, asks, and tells the daemon."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from yrnode.cli.client import Client
from yrnode.cli.errors import NotGood
from yrnode.cli.place import find
from yrnode.cli.table import plain, span
from yrnode.model.errors import UsageError
from yrnode.policy.intents import HEARD_EVERYWHERE_S

ANSWER_S = 5.0
"""For all but a pause, which is answered only when the other nodes have heard it, or have had the time to."""


def arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.split()[-1]
    if verb in ("pause", "resume"):
        parser.add_argument(
            "target", metavar="TARGET", nargs="?", default="all", help="a component or a group; else all"
        )
    elif verb == "fence":
        parser.add_argument("target", metavar="NODE", help="a node of the cluster file")
        parser.add_argument("--confirm-off", action="store_true", help="you have seen that it is off")
    elif verb == "restart":
        parser.add_argument("target", metavar="TARGET", help="a component, a group, or all; a node: stop, then start")
    else:
        parser.add_argument("target", metavar="TARGET", help="a component, a group, a node, or all")
    parser.add_argument("--why", default="", metavar="TEXT", help="kept in the events")
    parser.add_argument("--dry-run", action="store_true", help="say what it would touch, and do nothing")


def run(args: argparse.Namespace) -> int:
    """0 once the daemon has taken it, or there is nothing to do; the components follow on their own. 1 where the next
    daemon would not know it."""
    if args.verb == "fence" and not args.confirm_off:
        raise UsageError(f"fence {args.target}: what still runs there would meet a new life; add --confirm-off")
    heard_s = HEARD_EVERYWHERE_S if args.verb in ("pause", "resume") else 0.0
    client = Client(find(args), heard_s + ANSWER_S)
    path = f"/control/{args.verb}"
    body = {"target": args.target, "why": args.why}
    radius = client.post(path, {**body, "dry_run": True})
    nothing = not (radius["components"] or radius.get("quiet"))
    # to say that a node is off is an answer already
    sure = args.yes or (args.verb == "fence" and args.confirm_off)
    if not agreed(args, radius, lines(radius), f"{args.verb} {args.target}", sure=sure, nothing=nothing):
        return 0
    done = client.post(path, {**body, "dry_run": False})
    if done.get("absent"):
        print(f"{args.verb}: not heard by {', '.join(done['absent'])}", file=sys.stderr)
    print(
        json.dumps(done)
        if args.output == "json"
        else f"{args.verb} {args.target}: taken; watch it: yrnode status --watch"
    )
    return kept(args.verb, done)


def lines(radius: dict[str, Any]) -> list[str]:
    """The blast radius: what here, how much of it elsewhere, and for how long."""
    names = radius["components"]
    verb, what = radius["verb"], f"{radius['verb']} {radius['target']}"
    if verb in _MEANS:
        return [f"{what}: {_MEANS[verb]}", *reach(radius), *_at_once(radius)]
    if not names:
        found = f"{what}: {'touches nothing here by itself' if radius.get('quiet') else 'nothing to do'}"
        return [found, *reach(radius)]
    return [f"{what}: {verb}s {touches(radius)}", *reach(radius), *_time(radius)]


def touches(radius: dict[str, Any]) -> str:
    """The components of this node, and what restarts with them; what is left alone."""
    names, others, coupled = radius["components"], radius["untouched"], radius.get("coupled")
    more = f"; restarts with it: {', '.join(coupled)}" if coupled else ""
    left = f"; leaves {', '.join(others)}" if others else ""
    return f"{', '.join(names)}{more}{left}"


_MEANS = {
    "pause": "nothing is started, stopped or healed on its own, until yrnode resume; what runs goes on",
    "resume": "what yrnode heals and starts on its own, it does again",
    "fence": "the others no longer wait for it; what still runs there would meet a new life",
}


def reach(radius: dict[str, Any]) -> list[str]:
    """How much of all nodes it is."""
    nodes, groups, ranks = (radius.get(key) for key in ("nodes", "groups", "ranks"))
    if not nodes or not groups:
        return []
    many = f"{ranks} {'rank' if ranks == 1 else 'ranks'} of " if ranks else ""
    return [f"  in all: {many}{', '.join(groups)}, on {', '.join(nodes)}"]


def _time(radius: dict[str, Any]) -> list[str]:
    if radius["verb"] not in ("start", "restart") or "usual_s" not in radius:
        return []
    usual = radius["usual_s"]
    if usual is None:
        return ["  until it is ready: not known, it has not been seen to start here yet"]
    stop = ", after the stop" if radius["verb"] == "restart" else ""
    return [f"  until it is ready: usually {span(usual)}{stop}"]


def _at_once(radius: dict[str, Any]) -> list[str]:
    waiting = radius.get("waiting")
    return [f"  may be acted on at once: {', '.join(waiting)}"] if waiting else []


def kept(verb: str, done: dict[str, Any]) -> int:
    """0 where the next daemon will know the word as well, else 1, and it is said why not."""
    if not done.get("not_kept"):
        return 0
    until = "it holds, and is lost if yrnode ends before there is room"
    print(plain(f"{verb}: not kept: {done['not_kept']}; {until}"), file=sys.stderr)
    return 1


def agreed(
    args: argparse.Namespace, radius: dict[str, Any], said: list[str], what: str, *, sure: bool, nothing: bool = False
) -> bool:
    """Say what will be touched, and ask unless somebody is `sure`. False where it ends here: a dry run, or `nothing`
    to do. UsageError where nobody is there to ask, NotGood on a no."""
    as_json = args.output == "json"
    # with JSON, stdout is for the one object
    for line in said:
        print(plain(line), file=sys.stderr if as_json else sys.stdout, flush=True)
    if args.dry_run or nothing:
        if as_json:
            print(json.dumps(radius))
        return False
    if sure:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{what}: nobody is there to ask; add --yes")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotGood(f"{what}: not done")
    return True
