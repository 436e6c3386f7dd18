"""`yrnode clean`: what is left over on this node, whose it is, and whether it may go; and away with what may."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from yrnode.cli.errors import NotGood
from yrnode.cli.table import table
from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from yrnode.residue.inventory import Scope
    from yrnode.residue.item import Item

_LONGEST_RECORD = 1800
"""Characters of what was removed, so that an event has room for who did it as well."""
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show it")
    parser.add_argument(
        "--move-etcd-data",
        action="store_true",
        help="move etcd data that is not this node's out of the way, beside where it is; needs --yes",
    )


def run(args: argparse.Namespace) -> int:
    """0 when nothing is left to do, 1 when something stays.

    While the daemon runs, only what belongs to none of its components is removed: the rest it removes itself.
    """
    from yrnode.components import node as components
    from yrnode.config.load import load
    from yrnode.config.node import this_node
    from yrnode.process.launch import Owner
    from yrnode.process.lock import NodeLock, held
    from yrnode.residue.inventory import Scope

    if args.move_etcd_data and not (args.yes or args.dry_run):
        raise UsageError("clean --move-etcd-data: this takes etcd's data away from where it is; add --yes to mean it")
    cluster = load(args.config)
    node = this_node(cluster, args.node)
    host = components.host_of(cluster, node, os.environ)
    home, run_dir = host.places.state_dir, host.places.run_dir
    runs = held(home)
    scope = Scope(Owner(f"{cluster.cluster}/{node}", home, run_dir), tuple(components.specs(host)), runs)
    with contextlib.ExitStack() as stack:
        if not runs and not args.dry_run and home.exists():
            # no daemon starts while we work
            stack.enter_context(NodeLock(home))
        return _clean(scope, args)


def _clean(scope: Scope, args: argparse.Namespace) -> int:
    from yrnode.residue import inventory
    from yrnode.residue.item import Standing
    from yrnode.residue.remove import remove

    found = inventory.find(scope)
    doomed = [i for i in found if i.standing is Standing.REMOVABLE or (args.move_etcd_data and _movable(i))]
    as_json = args.output == "json"
    if not as_json:
        print("\n".join(_text(found)) if found else "nothing is left over")
        sys.stdout.flush()
    failed: dict[int, str] = {}
    gone: list[Item] = []
    done = not args.dry_run and bool(doomed)
    if done:
        _confirm(args, len(doomed))
        try:
            for item in doomed:
                if why := asyncio.run(remove(item, scope)):
                    failed[id(item)] = why
                    print(f"{item.what}: not removed: {why}", file=sys.stderr)
                else:
                    gone.append(item)
        finally:
            _record(args, scope, gone, [f"{i.what}: {failed[id(i)]}" for i in doomed if id(i) in failed])
    stays = [i for i in found if i.stays and i not in gone]
    if as_json:
        items = [{**i.as_dict(), "removed": i in gone, "error": failed.get(id(i), "")} for i in found]
        _print_json(scope, args, items, len(stays))
    elif gone:
        print(f"removed {len(gone)}; {len(stays)} left to be seen to")
    return 1 if stays else 0


def _record(args: argparse.Namespace, scope: Scope, gone: list[Item], failed: list[str]) -> None:
    """The event that says who has removed what: by the daemon, else into its file, which our lock keeps ours."""
    from yrnode.model.cover import Cover, short
    from yrnode.residue import inventory

    words = [f"{'moved aside' if i.kind == inventory.DATA else 'removed'} {i.kind} {i.what}" for i in gone]
    words += [f"not removed {line}" for line in failed]
    # a file's name may be no UTF-8, which the daemon does not take
    text = short(Cover()("; ".join(words)), _LONGEST_RECORD)
    if not text:
        return
    try:
        if scope.runs:
            from yrnode.cli.client import Client
            from yrnode.cli.place import find

            Client(find(args)).post("/control/cleaned", {"target": "yrnode", "why": text})
        elif scope.owner.home.exists():
            from yrnode.api.control import CLEANED
            from yrnode.api.peer import Peer
            from yrnode.model.cause import Cause, Reason
            from yrnode.telemetry.event_file import NAME
            from yrnode.telemetry.events import EventLog

            who = asyncio.run(Peer(os.getpid(), os.geteuid()).described())
            cause = Cause(Reason.OPERATOR, f"clean by {who}: {text}")
            EventLog(scope.owner.home / NAME).emit("yrnode", CLEANED, cause)
    except (NotGood, UsageError) as e:
        print(f"clean: this is not in the events: {e}", file=sys.stderr)


def _movable(item: Item) -> bool:
    from yrnode.residue import inventory
    from yrnode.residue.item import Standing

    return item.kind == inventory.DATA and item.standing is Standing.NOT_OURS


def _confirm(args: argparse.Namespace, count: int) -> None:
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("clean: nobody is there to ask; add --yes, or --dry-run to only look")
    print(f"Remove the {count} that are removable? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotGood("clean: not done")


def _print_json(scope: Scope, args: argparse.Namespace, items: list[dict[str, Any]], stays: int) -> None:
    cluster, _, node = scope.owner.name.partition("/")
    head = {"node": node, "cluster": cluster, "daemon": scope.runs, "dry_run": args.dry_run}
    print(json.dumps({**head, "items": items, "stays": stays}))


def _text(items: list[Item]) -> list[str]:
    rows = [(i.kind, i.standing.value, i.owner, _age(i.age_s), _size(i.size), f"{i.what}: {i.reason}") for i in items]
    return table(("kind", "verdict", "owner", "age", "size", "what"), rows)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return next((f"{seconds / size:.0f}{unit}" for unit, size in _UNITS if seconds >= size), "0s")


def _size(count: int | None) -> str:
    if count is None:
        return ""
    for unit, size in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
