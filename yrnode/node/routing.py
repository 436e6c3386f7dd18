"""Keeps the router's members what they should be, and takes a rank out before it is stopped.

The router's own node alone adds and removes by what is known of all nodes. Every node asks the router to drop a rank
of its own before it ends it, which costs a stop two seconds at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from yrnode.components.router import NAME
from yrnode.components.routers.base import RouterClient, RouterError
from yrnode.components.routers.kinds import client_of
from yrnode.config.cluster import Cluster
from yrnode.config.layout import router_url, routes
from yrnode.model.cause import Cause, Reason
from yrnode.model.routing import Judged, Route, RouterView, RouteView, Standing
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import RUNNING
from yrnode.node.draining import Draining
from yrnode.node.groups import Groups
from yrnode.node.unit import Unit
from yrnode.node.world import World
from yrnode.policy import routing
from yrnode.store.transport import within
from yrnode.telemetry.events import EventLog

log = logging.getLogger("yrnode.node")

LEAVE_S = 2.0
"""What a stop waits for the router at most."""
LOOK_S = 1.0
SOON_S = 0.2
"""After the router was told something it is looked at again, whether it has done it."""
FLOOR_S = 0.05
ANSWER_S = 2.0
ADD_S = 5.0
KEPT_S = 10.0
"""A server that was asked back while it was leaving, and is listed after so long, is in again. One version of the
sample proxy takes it back at once, another drops it first, once it has no request; it does not say which it is."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Before the router is told the same again."""


@dataclass
class _Said:
    """The last word about one server: not again before `until`, and after it with a longer pause."""

    until: float
    pause_s: float


class Routing:
    """`look` once a round. Does nothing where there is no router, or one that nobody knows how to tell."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        http: aiohttp.ClientSession,
        events: EventLog,
        units: Mapping[str, Unit],
        groups: Groups,
    ) -> None:
        self.draining = Draining(world, cluster, http, events, groups)
        self._world, self._events, self._routes = world, events, routes(cluster)
        self._client = client_of(cluster, http)
        self._judged: dict[str, Judged] = {}
        self._against: dict[str, str] = {}
        self._seen: object = None
        self._due = asyncio.Event()
        self._instance = ""
        self._taken_over: bool | None = None
        self._listed: frozenset[str] = frozenset()
        self._serving: frozenset[str] = frozenset()
        self._restored: frozenset[str] | None = None
        self._leaving: set[str] = set()
        self._asked_back: dict[str, float] = {}
        self._gone_at: dict[str, float] = {}
        self._said: dict[tuple[str, bool], _Said] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        router = cluster.router
        if router is None:
            return
        self._here = router.node == world.me
        self._blank = RouterView(router.kind, router_url(cluster))
        if self._client is None:
            words = "a command of your own: yrnode cannot tell it who is behind it"
            world.router = replace(self._blank, error=words) if self._here else None
            return
        for unit in units.values():
            unit.leave = self.leave
        if self._here:
            self._begin(self._run(self._client), "routing")

    def look(self, s: Snapshot) -> None:
        """Think again about who should be behind the router. Cheap: the router is told by a task of its own."""
        if self._client is None or not self._here:
            return
        judged = routing.judge_all(self._routes, s)
        seen = (judged, s.components[NAME].instance, s.components[NAME].state)
        if seen != self._seen:
            self._seen = seen
            self._learn(judged)
            self._due.set()

    def _learn(self, judged: dict[str, Judged]) -> None:
        self._judged = judged
        out = {url: j.why for url, j in judged.items() if j.standing is Standing.OUT}
        # what spoke against a server first is why it is out: it may start again before the router is looked at
        self._against = {url: self._against.get(url, why) for url, why in out.items()}

    # the router's own node

    async def _run(self, client: RouterClient) -> None:
        while True:
            try:
                pause_s = await self._keep(client)
            except Exception:
                log.exception("the router's members")
                pause_s = LOOK_S
            await asyncio.sleep(FLOOR_S)
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._due.wait(), pause_s)
            self._due.clear()

    async def _keep(self, client: RouterClient) -> float:
        """One comparison of what should be with what the router has; seconds until the next."""
        router = self._world.components[NAME]
        if self._taken_over is None:
            # one that an earlier yrnode started has its members since then
            self._taken_over = bool(router.instance)
        if router.state not in RUNNING or router.death is not None or not router.instance:
            self._show(f"the router is {router.state.value}")
            return LOOK_S
        if router.instance != self._instance:
            self._meet(router)
        try:
            listed = await client.listed(ANSWER_S)
        except RouterError as e:
            # its health check judges it
            self._show(str(e))
            return SOON_S if not router.proven else LOOK_S
        if self._world.components[NAME].instance != self._instance:
            return 0.0
        now = time.monotonic()
        self._note(listed, now)
        gone_s = {url: now - at for url, at in self._gone_at.items()}
        tells = routing.tell(self._members(), self._restored, gone_s)
        if not tells:
            self._restored = None
        due = [t for t in tells if now >= self._said.get((t.route.url, t.add), _Said(0.0, 0.0)).until]
        errors = await asyncio.gather(*(self._tell(client, t) for t in due))
        self._show(next(filter(None, errors), ""))
        return SOON_S if due else LOOK_S

    def _meet(self, router: ComponentView) -> None:
        """A router of another instance has nobody in it, or everybody; what is not known is put back as it was."""
        self._restored = self._serving if self._instance else None
        self._instance = router.instance
        self._listed = self._serving = frozenset()
        self._leaving.clear()
        self._asked_back.clear()
        self._gone_at.clear()
        self._said.clear()

    def _note(self, listed: frozenset[str], now: float) -> None:
        """What has changed since the last look, as events."""
        for url in self._listed - listed - self._asked_back.keys():
            self._gone_at[url] = now
        for url in list(self._gone_at):
            # only one that should be there all the while was taken out by somebody who knows more
            if url in listed or self._standing(url) is Standing.OUT:
                del self._gone_at[url]
        self._leaving &= listed
        # what it has kept for so long after that it does not drop any more
        self._leaving -= {url for url, at in self._asked_back.items() if now - at >= KEPT_S}
        self._asked_back = {url: at for url, at in self._asked_back.items() if url in listed}
        self._listed = listed
        there = listed - self._leaving
        for said in [key for key in self._said if (key[0] in there if key[1] else key[0] not in listed)]:
            del self._said[said]
        for member in self._members():
            url, was = member.route.url, member.route.url in self._serving
            if member.serves and not was and member.judged.standing is not Standing.OUT:
                self._serving |= {url}
                if not self._taken_over:
                    self._tell_event("member-in", member)
            elif was and not member.serves:
                self._serving -= {url}
                self._tell_event("member-out", member)
        self._taken_over = False

    def _tell_event(self, what: str, member: RouteView) -> None:
        route, reason = member.route, Reason.PROVEN
        text = f"behind the router, for {route.role.value} requests: {member.judged.why}"
        if what == "member-out":
            reason = Reason.GROUP
            why = self._against.get(route.url, "its own node, or somebody else, took it out")
            text = f"out of the router: {why}"
        self._events.emit(route.rank, what, Cause(reason, text, route.url, NAME), instance=self._instance)

    def _standing(self, url: str) -> Standing:
        judged = self._judged.get(url)
        return judged.standing if judged is not None else Standing.UNKNOWN

    def _members(self) -> list[RouteView]:
        nothing = Judged(Standing.UNKNOWN, "")
        return [
            RouteView(r, self._judged.get(r.url, nothing), r.url in self._listed, r.url in self._leaving)
            for r in self._routes
        ]

    async def _tell(self, client: RouterClient, t: routing.Tell) -> str:
        """Why it was not done; empty when it was."""
        key = (t.route.url, t.add)
        before = self._said.get(key)
        pause_s = FIRST_PAUSE_S if before is None else min(2 * before.pause_s, LONGEST_PAUSE_S)
        self._said[key] = _Said(time.monotonic() + pause_s, pause_s)
        try:
            if t.add:
                await client.add(t.route, ADD_S)
                if t.route.url in self._leaving:
                    self._asked_back.setdefault(t.route.url, time.monotonic())
            else:
                self._leaving.add(t.route.url)
                self._asked_back.pop(t.route.url, None)
                await client.remove(t.route, ANSWER_S)
        except RouterError as e:
            self._leaving.discard(t.route.url)
            return f"{t.route.rank} {'in' if t.add else 'out'}: {e}"
        return ""

    def _show(self, error: str) -> None:
        members = self._members()
        known = {m.route.url for m in members}
        self._world.router = replace(
            self._blank,
            members={m.route.url: m for m in members},
            others=tuple(self._world.cover(url) for url in sorted(self._listed - known)),
            error=self._world.cover(error),
        )

    # every node

    async def leave(self, name: str) -> None:
        """Take a rank of this node out of the router before it is ended, as far as that is done within two seconds.
        One that has died is taken out meanwhile."""
        view = self._world.components[name]
        route = next((r for r in self._routes if r.rank == name), None)
        if route is None or self._client is None or view.ready_at is None or self._down():
            return
        work = self._leave(self._client, route, view)
        if view.death is not None:
            self._begin(work, f"leave {name}")
        else:
            await work

    def _down(self) -> bool:
        """Whether the router runs on this node, and does not run now."""
        router = self._world.components.get(NAME)
        return router is not None and router.state not in RUNNING

    async def _leave(self, client: RouterClient, route: Route, view: ComponentView) -> None:
        began = time.monotonic()
        reason = view.leaving.reason if view.leaving is not None else Reason.GROUP
        try:
            await client.remove(route, LEAVE_S)
            cause = Cause(reason, f"out of the router, in {time.monotonic() - began:.2f} s", route.url)
        except RouterError as e:
            cause = Cause(reason, "it may still be in the router, and stops all the same", str(e))
        except Exception as e:
            # nothing here may hold a stop up
            log.exception("%s: leaving the router", view.name)
            cause = Cause(reason, "it may still be in the router, and stops all the same", repr(e))
        self._events.emit(view.name, "left-router", cause, instance=view.instance, generation=view.generation)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.draining.close()
