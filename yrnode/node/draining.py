"""Drains this node: its groups get no new requests, finish what they have, and stop.

A group stops as a whole, so all its ranks leave the router together; those of other nodes finish theirs as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import aiohttp

from yrnode.checks.unfinished import unfinished
from yrnode.components.routers.base import RouterAway, RouterError
from yrnode.components.routers.kinds import client_of
from yrnode.config.cluster import Cluster
from yrnode.config.layout import group_routes, routes
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import UsageError
from yrnode.model.routing import Drain, Route
from yrnode.node import operator, radius
from yrnode.node.groups import Groups
from yrnode.node.pace import pause_s
from yrnode.node.world import World
from yrnode.policy import intents, routing
from yrnode.telemetry.events import EventLog

log = logging.getLogger("yrnode.node")

LOOK_S = 0.5
ANSWER_S = 2.0
LONGEST_S = 86400.0


class Draining:
    """Carries out the drain that this node's intent asks for, also one that an earlier yrnode began."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        http: aiohttp.ClientSession,
        events: EventLog,
        groups: Groups,
    ) -> None:
        self._world, self._http, self._events, self._groups = world, http, events, groups
        self._client = client_of(cluster, http)
        mine = [name for name, g in cluster.groups.items() if g.ranks.get(world.me)]
        self._ranks = [r for name in mine for r in group_routes(cluster, name)]
        self._routes = [r for r in routes(cluster) if r.group in mine]
        self._task = asyncio.create_task(self._run(), name="draining")

    def ask(self, target: str, who: str, why: str, seconds: float, dry_run: bool) -> dict[str, Any]:
        """See `api.node.Node.drain`."""
        world = self._world
        if target != world.me:
            raise UsageError(f"drain {target}: this is {world.me}; a node is drained by its own yrnode, say it there")
        if not 0 < seconds <= LONGEST_S:
            raise UsageError(f"drain: a timeout is more than 0 s and at most {LONGEST_S:g} s")
        found = operator.asked(world, "stop", target, "drain")
        told = radius.told(world, "stop", target, found, time.monotonic(), not dry_run)
        if not dry_run and found.components:
            words = f"drain {target} by {who}" + (f": {why}" if why else "")
            cause = Cause(Reason.OPERATOR, words)
            operator.say(world, target, cause, drain_s=seconds)
            self._events.emit(target, "operator-drain", cause)
            told["not_kept"] = self._said()
        router = [r.rank for r in self._routes] if self._client is not None else []
        others = [n for n in told["nodes"] if n != target]
        return {**told, "verb": "drain", "others": others, "router": router}

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:
                log.exception("the drain")
            await asyncio.sleep(pause_s(time.monotonic(), LOOK_S))

    async def _look(self) -> None:
        world = self._world
        wish = intents.draining((world.me,), world.intents).get(world.me)
        if wish is None or world.closing:
            world.drain = None
            return
        now = time.monotonic()
        drain = world.drain or Drain(now, now + wish.drain_s)
        evidence = "" if drain.out else await self._take_out()
        counts = await asyncio.gather(*(self._count(r) for r in self._ranks))
        told = [n for n in counts if n is not None]
        left = sum(told) if len(told) == len(counts) else None
        busy = [f"{r.rank} has {'?' if n is None else n}" for r, n in zip(self._ranks, counts, strict=True) if n != 0]
        drain = replace(
            drain,
            out=drain.out or not evidence,
            unfinished=left,
            quiet=drain.quiet + 1 if left == 0 else 0,
            evidence=self._world.cover(evidence) or ", ".join(busy),
        )
        if intents.draining((world.me,), world.intents).get(world.me) != wish:
            # somebody has said something else meanwhile
            return
        world.drain = drain
        over = routing.drained(drain, time.monotonic())
        if over is not None:
            self._finish(drain, over)

    async def _take_out(self) -> str:
        """Why not every rank of the groups is out of the router; empty when all are."""
        client = self._client
        if client is None:
            return ""

        async def remove(route: Route) -> str:
            try:
                await client.remove(route, ANSWER_S)
            except RouterAway:
                return ""
            except RouterError as e:
                return str(e)
            return ""

        return next(filter(None, await asyncio.gather(*(remove(r) for r in self._routes))), "")

    async def _count(self, rank: Route) -> int | None:
        return await unfinished(self._http, rank.url, ANSWER_S)

    def _finish(self, drain: Drain, over: Cause) -> None:
        world = self._world
        world.drain = None
        what = "drained" if drain.out and drain.unfinished == 0 else "drain-timeout"
        self._events.emit(world.me, what, over)
        operator.carry_out(world, "stop", world.me, over)
        self._said()

    def _said(self) -> str:
        """Why it could not be kept, if so."""
        why = self._groups.save_wishes()
        if self._groups.shared is not None:
            self._groups.shared.heard()
        return why

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
