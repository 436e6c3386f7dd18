"""The daemon of `yrnode run`: ties the node, its API, systemd and the process's signals together."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import signal
from typing import TYPE_CHECKING, Any

from yrnode import __version__
from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from yrnode.api.reload import Loaded, Reload
    from yrnode.config.cluster import Cluster
    from yrnode.model.snapshot import Snapshot
    from yrnode.node.supervisor import Supervisor
    from yrnode.telemetry.jobs import Unit

log = logging.getLogger("yrnode.run")

KILL_S = 5.0
"""What a stop may take after its grace, until the last process is gone."""
MARGIN_S = 30.0
FIRST_LOOK_S = 0.02
LONGEST_LOOK_S = 1.0


def serve(args: argparse.Namespace, below: bool) -> bool:
    """Until everything is stopped, or let go of; whether the components were left running. `below`: as a child of our
    own init. UsageError before anything has started."""
    from yrnode.init.contract import let_through
    from yrnode.process.heap import be_thrifty
    from yrnode.telemetry.jobs import STOP, job_of, own_unit

    be_thrifty()
    unit = own_unit()
    early: list[int] = []
    if unit is not None or below:
        # it would end us before we have taken over what runs, which nobody would stop then
        signal.signal(signal.SIGTERM, lambda number, frame: early.append(number))
        # the watchdog's SIGABRT then leaves in the journal where the loop hung
        faulthandler.enable()
    if below:
        # the others once the loop handles them
        let_through(signal.SIGTERM, signal.SIGCHLD)

    from yrnode.api.reload import Reload, Runs
    from yrnode.components.known import cover_of
    from yrnode.node.supervisor import Supervisor
    from yrnode.preflight import host as preflight
    from yrnode.preflight.finding import Look
    from yrnode.process.lock import NodeLock
    from yrnode.telemetry.log import set_up

    loaded = _loaded(args.config, args.node)
    cluster, host, specs = loaded.cluster, loaded.host, loaded.specs
    refused, warnings = preflight.admission(host, specs)
    if refused:
        raise UsageError(*refused)
    with NodeLock(host.places.state_dir):
        cover = cover_of(cluster, loaded.file, specs)
        set_up(cover=cover)
        for line in warnings:
            log.warning("check: %s", line)

        def facts() -> dict[str, str]:
            from yrnode.preflight import agreed

            return agreed.facts(Look(host, specs))

        def supervisor() -> Supervisor:
            return Supervisor(cluster, host.node, specs, __version__, facts, cover)

        if unit is not None:
            runs = Runs("systemd", os.getpid(), unit.name, unit.user)
        else:
            runs = Runs("init", os.getppid()) if below else Runs("", os.getpid())
        reload = Reload(loaded, lambda: _loaded(loaded.file, args.node), runs)
        # the collector would go through all that is imported, again and again: 20 ms in which nothing else happens
        gc.collect()
        gc.freeze()
        daemon = _Daemon(cluster, supervisor(), unit, reload)
        asyncio.run(daemon.serve(early))
        if unit is not None and daemon.detached:
            # we are leaving: what a further signal is about, the list of jobs tells
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if job_of(unit) == STOP:
                log.info("the restart has become a stop: the components are taken over once more to be stopped")
                daemon = _Daemon(cluster, supervisor(), unit, reload)
                daemon.supervisor.shut_down()
                asyncio.run(daemon.serve([]))
    return daemon.detached


def _loaded(config: str | None, node: str | None) -> Loaded:
    """What the cluster file means here: at the start, and the same way when it is read again. UsageError."""
    from yrnode.api.reload import Loaded
    from yrnode.components import node as components
    from yrnode.config.files import find_file
    from yrnode.config.load import load
    from yrnode.config.node import this_node
    from yrnode.store.connect import refuse_unusable

    cluster = load(config)
    refuse_unusable(cluster)
    host = components.host_of(cluster, this_node(cluster, node), os.environ)
    return Loaded(find_file(config), host, components.specs(host))


class _Daemon:
    """One life of the loop with its API. `unit`: the systemd unit that we are, if systemd started us."""

    def __init__(self, cluster: Cluster, supervisor: Supervisor, unit: Unit | None, reload: Reload) -> None:
        self.supervisor = supervisor
        self.detached = False
        self._cluster = cluster
        self._unit = unit
        self._reload = reload
        self._deciding: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closing_since: float | None = None

    async def serve(self, early: list[int]) -> None:
        """Until everything is stopped, or let go of. `early`: signals that came before there was a loop."""
        from yrnode.api.server import Api
        from yrnode.cli.place import SOCKET
        from yrnode.config.layout import api_of, places
        from yrnode.init.contract import SIGNALS, let_through
        from yrnode.telemetry.notify import notify

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        loop.add_signal_handler(signal.SIGINT, self.supervisor.shut_down)
        loop.add_signal_handler(signal.SIGHUP, self._read_again)
        loop.add_signal_handler(signal.SIGUSR1, self._detach)
        let_through(*SIGNALS)
        node = self.supervisor.identity.node
        listen = api_of(self._cluster, node)
        run_dir = places(self._cluster, node).run_dir
        run_dir.mkdir(parents=True, exist_ok=True)
        api = Api(self.supervisor, listen.host, listen.port, run_dir / SOCKET, self._reload)
        await api.start()
        telling = asyncio.create_task(self._tell(), name="notify")
        if early:
            self._terminate()
        try:
            await self.supervisor.run()
        finally:
            await _end(telling, self._deciding, self._reading)
            notify(STOPPING="1", STATUS="leaves its components running" if self.detached else "everything is stopped")
            await api.close()

    def _terminate(self) -> None:
        """SIGTERM: stop everything, unless systemd is about to start us again or somebody only killed the daemon."""
        if self._unit is None:
            self.supervisor.shut_down()
        elif self._deciding is None or self._deciding.done():
            self._deciding = asyncio.create_task(self._decide(self._unit), name="job")

    async def _decide(self, unit: Unit) -> None:
        from yrnode.telemetry.jobs import STOP, job_of

        job = await asyncio.to_thread(job_of, unit)
        log.info("SIGTERM, and systemd's job for %s is: %s", unit.name, job or "none, or not to be read")
        if job == STOP:
            self.supervisor.shut_down()
        elif not self.supervisor.snapshot().closing:
            self._detach()

    def _read_again(self) -> None:
        """SIGHUP: what `yrnode reload` says, in the log. One that comes meanwhile is answered by the same."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(tell_reload(self._reload), name="reload")

    def _detach(self) -> None:
        self.detached = True
        self.supervisor.detach()

    async def _tell(self) -> None:
        """Tell systemd how we are, at a pace that its watchdog is content with.

        READY is said when the loop makes rounds and the API answers, not when the stack is ready: weights load for
        half an hour, which is no failed start. What is not ready yet stands in STATUS, and `yrnode probe ready` waits
        for it.
        """
        from yrnode.telemetry.notify import Teller, watchdog_s

        if "NOTIFY_SOCKET" not in os.environ:
            return
        teller = Teller()
        pace = min(LONGEST_LOOK_S, (watchdog_s() or 4.0) / 4)
        while True:
            snapshot = self.supervisor.snapshot()
            try:
                words = status_line(snapshot)
            except Exception as e:
                # that words are missing is no reason to starve the watchdog
                words = f"the status cannot be told: {e!r}"
            ready = teller.tell(self.supervisor.rounds, words, self._stop_s(snapshot))
            await asyncio.sleep(pace if ready else FIRST_LOOK_S)

    def _stop_s(self, snapshot: Snapshot) -> float | None:
        if not snapshot.closing:
            return None
        if self._closing_since is None:
            self._closing_since = snapshot.now
        return max(0.0, self._closing_since + stop_seconds(snapshot) - snapshot.now)


async def tell_reload(reload: Callable[[], dict[str, Any]]) -> None:
    """What differs in the cluster file, or what is wrong with it, as lines of the log. Never raises."""
    from yrnode.cli.reload import text
    from yrnode.cli.table import plain

    try:
        lines = text(await asyncio.to_thread(reload))
    except UsageError as e:
        for line in e.lines:
            log.warning("reload: %s", plain(line))
    except Exception:
        log.exception("reload: the cluster file could not be read again")
    else:
        for line in lines:
            log.info("reload: %s", plain(line))


def stop_seconds(s: Snapshot) -> float:
    """The longest that an orderly stop may take. Planes stop one after another, what is in one of them together."""
    longest: dict[Any, float] = {}
    for c in s.components.values():
        longest[c.plane] = max(longest.get(c.plane, 0.0), c.spec.stop_grace_s + KILL_S)
    return sum(longest.values()) + MARGIN_S


def status_line(s: Snapshot) -> str:
    """What `systemctl status` shows of the node."""
    from yrnode.api.status import reasons
    from yrnode.model.state import WITH_PROCESS

    if s.closing:
        left = [c.name for c in s.components.values() if c.state in WITH_PROCESS]
        return f"stops: {', '.join(left)}" if left else "everything is stopped"
    why = reasons(s)
    if not why:
        return f"ready: {', '.join(s.components)}"
    more = f" (and {len(why) - 1} more: yrnode status)" if len(why) > 1 else ""
    return f"not ready: {why[0]}{more}"


async def _end(*tasks: asyncio.Task[None] | None) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    for failed in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(failed, Exception):
            log.error("a task of the daemon itself failed: %r", failed)
