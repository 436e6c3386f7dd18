"""The loop of one node: observe, decide, act, record."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from yrnode.checks.base import Tools
from yrnode.components.node import output_files
from yrnode.components.vllm import RPC_PORT
from yrnode.config.cluster import Cluster
from yrnode.config.layout import etcd_endpoints, places
from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import UsageError
from yrnode.model.group import GroupMove
from yrnode.model.identity import Identity
from yrnode.model.snapshot import Snapshot
from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Move
from yrnode.node import operator, world
from yrnode.node.storewatch import StoreWatch
from yrnode.node.unit import Unit
from yrnode.policy.plan import decide, next_look
from yrnode.process.subreaper import Reaper, become_subreaper
from yrnode.residue.ports import free_port
from yrnode.store.gateway import EtcdGateway
from yrnode.telemetry.events import EventLog
from yrnode.telemetry.metrics import Metrics

log = logging.getLogger("yrnode.node")

FLOOR_S = 0.002
"""The least pause between two rounds: a storm of facts costs one round, not thousands."""
LONGEST_PAUSE_S = 1.0
ALIVE_S = 10.0
"""A loop that has made no round for so long is not alive."""
AFTER_ERROR_S = 1.0
STORE_TIMEOUT_S = 2.0


class Supervisor:
    """Runs the components of one node until `shut_down`. `specs` in order of start."""

    def __init__(self, cluster: Cluster, node: str, specs: list[ComponentSpec], version: str) -> None:
        now = time.monotonic()
        self._cluster = cluster
        self.identity = Identity(node, cluster.cluster, version, time.time())
        self._places = places(cluster, node)
        self._world = world.make(specs, now)
        self._values: dict[str, Mapping[str, str]] = {}
        self._round_at = now
        self._stalled = False
        self._wake = asyncio.Event()
        self._ready_said = False
        self.events = EventLog(self._places.state_dir / "events.jsonl")
        self.metrics = Metrics(node, version, self.snapshot)
        self.ready = asyncio.Event()

    # what the API reads

    def snapshot(self) -> Snapshot:
        return self._world.snapshot(time.monotonic())

    def alive(self) -> bool:
        return time.monotonic() - self._round_at < ALIVE_S

    def log_paths(self, name: str) -> list[Path]:
        view = self._world.components.get(name)
        if view is None:
            raise UsageError(f"no component {name!r} on this node; there are: {', '.join(self._world.components)}")
        return output_files(view.spec)

    async def control(self, verb: str, target: str, who: str, why: str, dry_run: bool) -> dict[str, Any]:
        """See `api.node.Node.control`."""
        if self._world.closing:
            raise UsageError("yrnode is going down and takes no more words; start it again with: yrnode run")
        found = operator.radius(self._world, verb, target)
        if not dry_run:
            words = f"{verb} {target} by {who}" + (f": {why}" if why else "")
            cause = Cause(Reason.OPERATOR, words)
            operator.carry_out(self._world, verb, target, cause)
            self.events.emit(target, f"operator-{verb}", cause)
            self._wake.set()
        untouched = [n for n in self._world.components if n not in found.components]
        return {
            "verb": verb,
            "target": target,
            "components": list(found.components),
            "untouched": untouched,
            "done": not dry_run,
        }

    def shut_down(self) -> None:
        """Stop everything in order; `run` returns when nothing is left."""
        if not self._world.closing:
            self.events.emit(
                "yrnode", "closing", Cause(Reason.SHUTDOWN, "stops all components, the last started first")
            )
            operator.shut_down(self._world)
            self._wake.set()

    # the loop

    async def run(self) -> None:
        become_subreaper()
        store = EtcdGateway(etcd_endpoints(self._cluster), timeout_s=STORE_TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as http:
            watch = StoreWatch(store, f"/yrnode/{self._cluster.cluster}/store", self._store_changed)
            tools = Tools(http, store, watch.steady_s)
            owner = f"{self._cluster.cluster}/{self.identity.node}"
            self._units = {
                name: Unit(name, self._world, tools, owner, self._places.state_dir, self._wake.set)
                for name in self._world.components
            }
            reaper = Reaper(lambda: {pid for u in self._units.values() for pid in u.watched})
            try:
                await self._rounds()
            finally:
                reaper.close()
                await watch.close()
                for unit in self._units.values():
                    await unit.close()
                await store.close()

    async def _rounds(self) -> None:
        while not (self._world.closing and world.at_rest(self.snapshot())):
            began = time.monotonic()
            try:
                busy = self._round(began)
            except Exception as e:
                # the loop must outlive any fault of its own
                log.exception("a round failed")
                self.events.emit("yrnode", "round-failed", Cause(Reason.RESIDUE, f"a round failed: {e!r}"))
                await asyncio.sleep(AFTER_ERROR_S)
                continue
            self._round_at = time.monotonic()
            self.metrics.observe_loop(self._round_at - began)
            await asyncio.sleep(FLOOR_S)
            if not busy:
                await self._pause()

    async def _pause(self) -> None:
        snapshot = self.snapshot()
        look = next_look(snapshot)
        pause = LONGEST_PAUSE_S if look is None else min(LONGEST_PAUSE_S, max(0.0, look - snapshot.now))
        try:
            await asyncio.wait_for(self._wake.wait(), pause)
        except (TimeoutError, asyncio.TimeoutError):
            return
        self._wake.clear()

    def _round(self, now: float) -> bool:
        """One round; whether anything was done, so that the next one is due at once."""
        snapshot = self._world.snapshot(now, random.random())  # noqa: S311  spreads restarts, guards no secret
        actions = decide(snapshot)
        for action in actions:
            self._act(action, now)
        self._say_ready()
        return bool(actions)

    def _act(self, action: Action, now: float) -> None:
        if isinstance(action.move, GroupMove):
            if action.move is GroupMove.GO:
                self._values[action.target] = self._choose_rpc_port(action.target)
            self._world.apply(action, now)
            record = self._world.groups[action.target].record
            self.events.emit(action.target, action.move.value, action.cause, generation=record.n)
            return
        before = self._world.components[action.target]
        self._world.apply(action, now)
        unit = self._units[action.target]
        unit.perform(action.move, self._values.get(before.spec.group or "", {}))
        view = self._world.components[action.target]
        if action.move is Move.START and before.generation:
            self.metrics.restarted(view.name, view.plane.value, action.cause.reason)
        if action.move is Move.READY and view.history:
            took = now - view.history[-1].at
            self.metrics.observe_recovery("ready", took, component=view.name, group=view.spec.group or "")
        # the instance that a move ends is the one that it is about
        instance = view.instance or before.instance
        self.events.emit(view.name, action.move.value, action.cause, instance=instance, generation=view.generation)

    def _choose_rpc_port(self, group: str) -> dict[str, str]:
        """A port for this generation's data-parallel handshake, where the file leaves it open."""
        own = self._cluster.groups[group]
        if own.rpc_port is not None:
            return {}
        return {RPC_PORT: str(free_port(self._cluster.nodes[self.identity.node].address))}

    def _store_changed(self, available: bool, evidence: str) -> None:
        self._world.store_available, self._world.store_since = available, time.monotonic()
        if available:
            self.events.emit("store", "available", Cause(Reason.RECOVERED, "the store answers"))
        else:
            self.events.emit("store", "unavailable", Cause(Reason.CHECK, "the store does not answer", evidence))
        self._wake.set()

    def _say_ready(self) -> None:
        ready = all(c.state.value == "ready" for c in self._world.components.values())
        if ready and not self._ready_said:
            took = time.time() - self.identity.started_at
            self.events.emit(
                "yrnode", "ready", Cause(Reason.PROVEN, f"READY: all components are proven, {took:.1f} s")
            )
            self.ready.set()
        elif self._ready_said and not ready and not self._world.closing:
            self.events.emit("yrnode", "not-ready", Cause(Reason.CHECK, "not every component is ready"))
        self._ready_said = ready
