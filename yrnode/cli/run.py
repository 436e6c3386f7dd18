"""`yrnode run`: the daemon, in the foreground, or below a process of its own that brings it back."""

from __future__ import annotations

import argparse

from yrnode.model.errors import UsageError

SHORTEST_WATCHDOG_S = 5.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--init",
        action="store_true",
        help="for a container: the daemon as a child of a small process that reaps, passes signals on, and starts it "
        "again when it dies or hangs, while everything else runs on",
    )
    parser.add_argument(
        "--watchdog", metavar="TIME", help="with --init: how long the daemon may make no round, such as 1m; else 30s"
    )


def run(args: argparse.Namespace) -> int:
    """0 after an orderly stop. UsageError before anything has started."""
    from yrnode.init.contract import DETACHED, below_init

    below = below_init()
    if args.init and not below:
        return _init(args)
    if args.watchdog and not args.init:
        raise UsageError("yrnode run: --watchdog is for --init; leave it out")
    # not before: the init is to be small
    from yrnode.cli.daemon import serve

    detached = serve(args, below)
    return DETACHED if detached and below else 0


def _init(args: argparse.Namespace) -> int:
    from yrnode.init.parent import WATCHDOG_S, Init, same_command
    from yrnode.telemetry.log import set_up

    seconds = WATCHDOG_S
    if args.watchdog:
        from yrnode.model.units import parse_duration

        try:
            seconds = parse_duration(args.watchdog)
        except ValueError as e:
            raise UsageError(f"yrnode run: --watchdog: {e}") from None
        if seconds < SHORTEST_WATCHDOG_S:
            raise UsageError(
                f"yrnode run: --watchdog: {args.watchdog} is too short; write {SHORTEST_WATCHDOG_S:g}s or more"
            )
    set_up()
    return Init(same_command(), seconds).run()
