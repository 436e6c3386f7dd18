"""The loop of one node: observe, decide, act, record."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import aiohttp

from yrnode.checks.base import Tools
from yrnode.components.node import output_files
from yrnode.config.cluster import Cluster
from yrnode.config.layout import api_of, etcdctl, head_node, places, worker_address
from yrnode.config.ports import node_ports
from yrnode.model.action import Action
from yrnode.model.board import Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import Cover
from yrnode.model.errors import NotNow, UsageError
from yrnode.model.identity import Identity
from yrnode.model.snapshot import Snapshot
from yrnode.model.spec import RPC_PORT, ComponentSpec
from yrnode.model.state import Move
from yrnode.node import adoption, members, operator, radius, world
from yrnode.node.alike import Facts, learn
from yrnode.node.clocks import Clocks
from yrnode.node.drill import Drills
from yrnode.node.groups import Groups, group_places
from yrnode.node.memory import Memory
from yrnode.node.notices import Notices
from yrnode.node.pace import Steps, pause_s, phases
from yrnode.node.peers import Peers
from yrnode.node.routing import Routing
from yrnode.node.shared import Shared
from yrnode.node.storewatch import StoreWatch
from yrnode.node.storewrites import StoreWrites
from yrnode.node.unit import Unit
from yrnode.node.upkeep import Upkeep, directories
from yrnode.policy import phase, readiness
from yrnode.policy.plan import decide, next_look
from yrnode.process import subreaper, table
from yrnode.process.launch import Owner
from yrnode.process.reaper import Reaper
from yrnode.residue.ports import free_port
from yrnode.store.connect import connect
from yrnode.store.interface import Store
from yrnode.store.keys import ClusterKeys
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
    """Runs one node's components until `shut_down`. `specs` in order of start; `facts()` as in `model.board.Peer`;
    `cover` is laid over all words that come from outside."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        specs: list[ComponentSpec],
        version: str,
        facts: Callable[[], Facts] = dict,
        cover: Callable[[str], str] | None = None,
    ) -> None:
        now = time.monotonic()
        self._facts = facts
        self._cluster = cluster
        self.identity = Identity(node, cluster.cluster, version, time.time())
        self._places = places(cluster, node)
        self._world = world.make(specs, now, node, group_places(cluster))
        # the same words come again and again
        self._world.cover = lru_cache(maxsize=1024)(cover or Cover())
        self._memory = Memory(self._places.state_dir)
        self._told: dict[str, str] = {}
        self._store_id = ""
        self._detached = False
        self._routing: Routing | None = None
        self._round_at = now
        self._wake = asyncio.Event()
        self._ready_said = False
        self._unready_since = now
        self.events = EventLog(self._places.state_dir / "events.jsonl", cover=self._world.cover)
        self._notices = Notices(self.events)
        self._drills = Drills(self._world, self.events, lambda name: self._units[name].instance, self._wake.set)
        self._clocks = Clocks(self._world, self.events)
        self.metrics = Metrics(node, version, self.snapshot)
        heads = frozenset(n for n, g in cluster.groups.items() if g.rpc_port is None and head_node(g) == node)
        self._groups = Groups(self._world, self._memory, self.events, heads, self._free_port, self._tell_once)
        self.rounds = 0
        """How many the loop has made: what feeds the watchdog."""

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
            raise NotNow("yrnode is going down and takes no more words; say it to the next one")
        found = operator.asked(self._world, verb, target)
        told = radius.told(self._world, verb, target, found, time.monotonic(), not dry_run)
        if not dry_run:
            who, why = self._world.cover(who), self._world.cover(why)
            words = f"{verb} {target} by {who}" + (f": {why}" if why else "")
            cause = Cause(Reason.OPERATOR, words)
            if verb == "fence":
                # only what the store has taken is done
                await self._groups.fence(target, who, why)
            else:
                operator.carry_out(self._world, verb, target, cause)
                told["not_kept"] = self._groups.save_wishes()
            self.events.emit(target, f"operator-{verb}", cause)
            self._wake.set()
            told |= await self._groups.told(verb, target)
        return told

    async def drain(self, target: str, who: str, why: str, seconds: float, dry_run: bool) -> dict[str, Any]:
        """See `api.node.Node.drain`."""
        if self._world.closing or self._routing is None:
            raise NotNow("yrnode is going down, which stops everything without a drain")
        who, why = self._world.cover(who), self._world.cover(why)
        return self._routing.draining.ask(target, who, why, seconds, dry_run)

    async def drill(self, name: str, target: str, who: str, why: str, dry_run: bool) -> dict[str, Any]:
        """See `api.node.Node.drill`."""
        who, why = self._world.cover(who), self._world.cover(why)
        return await self._drills.ask(name, target, who, why, dry_run)

    def shut_down(self) -> None:
        """Stop everything in order; `run` returns when nothing is left."""
        if not self._world.closing:
            self.events.emit(
                "yrnode", "closing", Cause(Reason.SHUTDOWN, "stops all components, the last started first")
            )
            self._drills.end()
            operator.shut_down(self._world)
            self._wake.set()

    def detach(self) -> None:
        """End the loop and leave everything running, for the next yrnode to take over."""
        cause = Cause(Reason.SHUTDOWN, "yrnode ends and leaves its components running")
        self.events.emit("yrnode", "detached", cause)
        self._detached = True
        self._wake.set()

    # the loop

    async def run(self) -> None:
        subreaper.become_subreaper()
        self._store = store = connect(self._cluster, timeout_s=STORE_TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as http:
            watch = StoreWatch(store, ClusterKeys(self._cluster.cluster).store, self._store_changed)
            writes = StoreWrites(store, etcdctl(self._cluster), self._world, self.events, self._wake.set)
            tools = Tools(http, store, watch.steady_s, unsure=self._unsure, hits=self.metrics.hits)
            owner = Owner(
                f"{self._cluster.cluster}/{self.identity.node}", self._places.state_dir, self._places.run_dir
            )
            member = members.of(self._cluster, self.identity.node, self._world, self.events, self._wake.set)
            steps = Steps()
            self._units = {
                name: Unit(
                    name,
                    self._world,
                    tools,
                    owner,
                    self._wake.set,
                    steps,
                    phase,
                    member.get(name),
                    self.metrics.removed,
                )
                for name, phase in zip(self._world.components, phases(), strict=False)
            }
            reaper = Reaper(lambda: {pid for u in self._units.values() for pid in u.watched})
            upkeep = shared = peers = None
            self._routing = Routing(self._world, self._cluster, http, self.events, self._units, self._groups)
            try:
                self._recall()
                shared = self._groups.shared = self._share(store)
                learn(self._facts, shared.say_facts)
                peers = Peers(self._world, self._cluster, self._wake.set)
                wanted = directories(self._places, self._world)
                upkeep = Upkeep(self._world, wanted, self._units, self.events, self._wake.set)
                await self._rounds()
                if self._world.closing:
                    self._groups.ended_on_purpose()
            finally:
                if upkeep is not None:
                    await upkeep.close()
                reaper.close()
                self._drills.end()
                for part in (self._routing, peers, shared):
                    if part is not None:
                        await part.close()
                await watch.close()
                await writes.close()
                for unit in self._units.values():
                    await unit.close()
                await store.close()

    def _share(self, store: Store) -> Shared:
        own = self._cluster
        peer = Peer(
            uuid.uuid4().hex[:12],
            table.boot_id(),
            self.identity.version,
            api=api_of(own, self.identity.node).listen,
            digests={g.name: g.digest for g in self._world.groups.values()},
        )
        return Shared(
            store,
            self._world,
            ClusterKeys(own.cluster),
            peer,
            cluster_name=own.datasystem.cluster_name,
            worker_of={n: worker_address(own, n) for n in own.nodes},
            wake=self._wake.set,
            done=self._groups.done,
            memory=self._memory,
        )

    def _unsure(self, group: str) -> str:
        view = self._world.groups[group]
        return phase.unsure(view, self._world.board, self._world.fresh, self._world.me)

    def _recall(self) -> None:
        """Before the first round: what an earlier yrnode left running and remembered."""
        for name, unit in self._units.items():
            notes = unit.adopt()
            view = self._world.components[name]
            for note in notes:
                self.events.emit(name, "record", Cause(Reason.RESIDUE, note), instance=view.instance)
            if view.instance and view.cause is not None:
                self.events.emit(name, "adopted", view.cause, instance=view.instance, generation=view.generation)
        for name, group in self._world.groups.items():
            self._world.groups[name] = adoption.recall_group(group, self._memory, self._world.components)
        unwanted, intents = self._memory.load_wishes()
        for name, cause in unwanted.items():
            operator.keep_stopped(self._world, name, cause)
        for target, intent in intents.items():
            self._world.heed(target, intent)
        for line in self._memory.aside:
            self.events.emit("yrnode", "record", Cause(Reason.RESIDUE, line))

    async def _rounds(self) -> None:
        while not self._detached and not (self._world.closing and world.at_rest(self.snapshot())):
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
            self.rounds += 1
            self.metrics.observe_loop(self._round_at - began)
            await asyncio.sleep(FLOOR_S)
            if not busy:
                await self._pause()

    async def _pause(self) -> None:
        snapshot = self.snapshot()
        look = next_look(snapshot)
        longest = pause_s(snapshot.now, LONGEST_PAUSE_S)
        pause = longest if look is None else min(longest, max(0.0, look - snapshot.now))
        try:
            await asyncio.wait_for(self._wake.wait(), pause)
        except (TimeoutError, asyncio.TimeoutError):
            return
        self._wake.clear()

    def _round(self, now: float) -> bool:
        """One round; whether anything was done, so that the next one is due at once."""
        if not self._clocks.look():
            return False
        if self._groups.shared is not None:
            self._groups.shared.refresh(now)
        snapshot = self._world.snapshot(now, random.random())  # noqa: S311  spreads restarts, guards no secret
        acted = [self._try_to_act(action, now) for action in decide(snapshot)]
        self._groups.keep_again(now)
        self._notices.look(snapshot)
        self.metrics.follow(snapshot)
        if self._routing is not None:
            self._routing.look(snapshot)
        self._say_ready()
        return any(acted)

    def _try_to_act(self, action: Action, now: float) -> bool:
        """A fault of ours with one component must not hold the others up."""
        try:
            return self._act(action, now)
        except Exception as e:
            log.exception("%s: %s failed", action.target, action.move.value)
            self._tell_once(action.target, f"yrnode could not carry out {action.move.value}: {e!r}")
            return False

    def _tell_once(self, target: str, text: str) -> None:
        """An event for what goes on for a while: only when its words change. Empty: it is over."""
        if not text:
            self._told.pop(target, None)
        elif self._told.get(target) != text:
            self._told[target] = text
            self.events.emit(target, "held-up", Cause(Reason.RESIDUE, text))

    def _act(self, action: Action, now: float) -> bool:
        """Write it down, carry it out, tell. Whether it was done."""
        if not isinstance(action.move, Move):
            return self._groups.act(action, now)
        before = self._world.components[action.target]
        group = before.spec.group or before.spec.lives_with
        if action.move is Move.START and group is not None and not self._groups.about_to_start(group):
            return False
        self._world.apply(action, now)
        unit = self._units[action.target]
        unit.perform(action.move, self._values(before.spec.group))
        view = self._world.components[action.target]
        if action.move is Move.START and before.generation:
            own = not action.cause.component or action.cause.component == view.name
            self.metrics.restarted(view.name, view.plane.value, action.cause.reason if own else Reason.GROUP)
        # the instance that a move ends is the one that it is about
        instance = view.instance or before.instance
        self.events.emit(view.name, action.move.value, action.cause, instance=instance, generation=view.generation)
        return True

    def _free_port(self) -> int:
        """One that no part of the file claims either. OSError where none is free."""
        own = self.identity.node
        claimed = {p for use in node_ports(self._cluster, own) for p in range(use.first, use.last + 1)}
        return free_port(self._cluster.nodes[own].address, claimed)

    def _values(self, group: str | None) -> Mapping[str, str]:
        """What stands in command lines for values that only a generation knows."""
        port = self._world.groups[group].record.rpc_port if group else None
        return {} if port is None else {RPC_PORT: str(port)}

    def _store_changed(self, available: bool, evidence: str, store_id: str) -> None:
        before, known, self._store_id = self._world.store_available, self._store_id, store_id
        if available is before:
            if known and store_id != known:
                cause = Cause(Reason.STORE, "the store has lost its data", f"store {store_id} instead of {known}")
                self.events.emit("store", "replaced", cause)
                self._world.store_since = time.monotonic()
            self._wake.set()
            return
        away = time.monotonic() - self._world.store_since
        self._world.store_available, self._world.store_since = available, time.monotonic()
        if available:
            words = f"the store answers again, after {away:.1f} s" if known else "the store answers"
            self.events.emit("store", "available", Cause(Reason.RECOVERED, words))
        else:
            self.events.emit("store", "unavailable", Cause(Reason.CHECK, "the store does not answer", evidence))
        self._wake.set()

    def _say_ready(self) -> None:
        now = time.monotonic()
        ready = readiness.ready(self._world.snapshot(now))
        if ready and not self._ready_said:
            took = now - self._unready_since
            self.events.emit("yrnode", "ready", Cause(Reason.PROVEN, f"READY after {took:.1f} s"))
        elif self._ready_said and not ready and not self._world.closing:
            self._unready_since = now
            self.events.emit("yrnode", "not-ready", Cause(Reason.CHECK, "not every component is ready"))
        self._ready_said = ready
