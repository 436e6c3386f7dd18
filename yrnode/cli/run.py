"""`yrnode run`: the daemon, in the foreground. Ties the node, its API and the process's signals together."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from yrnode import __version__
from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from yrnode.config.cluster import Cluster
    from yrnode.node.supervisor import Supervisor


def arguments(parser: argparse.ArgumentParser) -> None:
    """`yrnode run` takes only what every verb takes."""


def run(args: argparse.Namespace) -> int:
    """0 after an orderly stop. UsageError before anything has started."""
    from yrnode.components import node as components
    from yrnode.components.supported import refuse_unsupported
    from yrnode.config.load import load
    from yrnode.config.node import this_node
    from yrnode.node.supervisor import Supervisor
    from yrnode.preflight import host as preflight
    from yrnode.process.lock import NodeLock
    from yrnode.telemetry.log import set_up

    cluster = load(args.config)
    refuse_unsupported(cluster)
    node = this_node(cluster, args.node)
    host = components.host_of(cluster, node, os.environ)
    specs = components.specs(host)
    problems = preflight.problems(host, specs)
    if problems:
        raise UsageError(*problems)
    with NodeLock(host.places.state_dir):
        set_up()
        asyncio.run(_serve(cluster, Supervisor(cluster, node, specs, __version__)))
    return 0


async def _serve(cluster: Cluster, supervisor: Supervisor) -> None:
    from yrnode.api.server import Api
    from yrnode.cli.place import SOCKET
    from yrnode.config.layout import api_of, places
    from yrnode.telemetry.notify import notify

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.shut_down)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    loop.add_signal_handler(signal.SIGUSR1, supervisor.detach)
    listen = api_of(cluster, supervisor.identity.node)
    run_dir = places(cluster, supervisor.identity.node).run_dir
    run_dir.mkdir(parents=True, exist_ok=True)
    api = Api(supervisor, listen.host, listen.port, run_dir / SOCKET)
    await api.start()
    said = asyncio.create_task(_say_ready(supervisor))
    try:
        await supervisor.run()
    finally:
        notify(STOPPING="1")
        said.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await said
        await api.close()


async def _say_ready(supervisor: Supervisor) -> None:
    from yrnode.telemetry.notify import notify

    await supervisor.ready.wait()
    notify(READY="1", STATUS="all components are ready")
