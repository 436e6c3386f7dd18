"""This node's etcd member among the others: what `policy/members.py` decides before each start is carried out here.

With one member there is nothing to decide: it starts on what it has. What the member was part of when it was last
ready is kept in state_dir, outside its data: it is what tells data that are gone from data that never were.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from yrnode.checks.base import Tools
from yrnode.config.cluster import Cluster
from yrnode.config.layout import etcd_clients, etcd_nodes, etcd_peers, places
from yrnode.model.cause import Cause, Reason
from yrnode.model.member import Heard, Kept, MemberMove, MemberStep, MemberView, Word
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import State
from yrnode.node.world import World
from yrnode.policy import members as policy
from yrnode.process import atomic
from yrnode.residue import datadir, wal
from yrnode.store.connect import connect, credentials
from yrnode.store.errors import StoreError
from yrnode.store.keys import ClusterKeys
from yrnode.store.members import Members, PeerPort, PeerWord
from yrnode.telemetry.events import EventLog

log = logging.getLogger("yrnode.node")

RECORD = "etcd-member.json"
AGAIN_S = 0.5
LONGEST_PAUSE_S = 5.0
MOST_STEPS = 20
"""Of one start that change something. A list that others keep changing is for people to look at."""
OWN_TIMEOUT_S = 2.0


def of(
    cluster: Cluster, node: str, world: World, events: EventLog, wake: Callable[[], None]
) -> dict[str, Membership]:
    """By component: one for etcd, where this node runs it."""
    if node not in etcd_nodes(cluster):
        return {}
    return {policy.NAME: Membership(cluster, node, world, events, wake)}


class Membership:
    """For a node that runs etcd. `wake` asks for a round."""

    def __init__(self, cluster: Cluster, node: str, world: World, events: EventLog, wake: Callable[[], None]) -> None:
        own = places(cluster, node)
        self._cluster, self._node, self._world, self._events, self._wake = cluster.cluster, node, world, events, wake
        self._clients, self._peers = etcd_clients(cluster), etcd_peers(cluster)
        self._data, self._record = own.etcd_data_dir, own.state_dir / RECORD
        self._key = ClusterKeys(cluster.cluster).store
        self._kept = self._load()
        trust = credentials(cluster)
        address, port = cluster.nodes[node].address, cluster.etcd.peer_port
        self._word = PeerWord(cluster.cluster, address, port, trust.server_context())
        self._told = ""
        self._remembered: tuple[str, str] | None = None
        self._heard: dict[str, Heard] = {}
        self._silent_since: dict[str, float] = {}
        self._settling: asyncio.Task[Any] | None = None
        self._members = Members(trust)
        self._own = connect(cluster, [self._clients[node]], timeout_s=OWN_TIMEOUT_S)
        self.values: Mapping[str, str] = {}
        """Words of etcd's command line for the start that was settled last, each with what stands in its place."""

    def equip(self, tools: Tools) -> Tools:
        """For etcd's own checks: with other members the store's answers say nothing about this one."""
        return replace(tools, own=self._own, members=self._members) if len(self._peers) > 1 else tools

    @property
    def _view(self) -> ComponentView:
        return self._world.components[policy.NAME]

    async def settle(self) -> Cause | None:
        """Before a start: until the member may start, with `values`. A cause when it must not be tried any more."""
        self.values = {}
        if len(self._peers) == 1:
            return None
        self._settling = asyncio.current_task()
        self._heard, self._silent_since = {}, {}
        cause, added, steps, pause_s = self._view.cause, 0, 0, AGAIN_S
        outcast = cause is not None and cause.reason is Reason.MEMBER
        try:
            while self._view.state is State.CLEANING:
                view = await self._look(outcast, added)
                step = policy.decide(view)
                if step.move in (MemberMove.START, MemberMove.NEW, MemberMove.JOIN):
                    self._begin(view, step, cause)
                    return None
                if step.move is MemberMove.WAIT:
                    await self._wait(view, step)
                    await asyncio.sleep(AGAIN_S)
                    continue
                steps += 1
                if steps > MOST_STEPS:
                    return Cause(Reason.MEMBER, f"not settled in {MOST_STEPS} steps", str(step.cause), policy.NAME)
                failed = await self._change(view, step)
                if isinstance(failed, int):
                    added, pause_s = failed, AGAIN_S
                else:
                    self._hold_up(Cause(Reason.MEMBER, f"waits: {step.cause.text}", failed, policy.NAME))
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            await self._word.hush()
        return None

    async def _look(self, outcast: bool, added: int) -> MemberView:
        others = [n for n in self._peers if n != self._node]
        ports = await asyncio.gather(*(self._members.at_peer_port(self._peers[n]) for n in others))
        found = await asyncio.gather(*(self._members.living(n, self._clients[n], self._key) for n in others))
        silent_s = self._note(dict(zip(others, ports, strict=True)), time.monotonic())
        answers = sorted((x for x in found if x is not None), key=lambda x: not x.store)
        data = await asyncio.to_thread(datadir.state, self._data)
        written = await asyncio.to_thread(wal.identity, self._data / "member/wal")
        living = answers[0] if answers else None
        # looked at anew: an operator may take the record away
        self._kept = await asyncio.to_thread(self._load)
        return MemberView(
            self._node,
            self._peers,
            data,
            self._kept,
            written or (0, 0),
            outcast,
            dict(self._heard),
            silent_s,
            living,
            added,
            cure=self._cure(),
        )

    def _note(self, ports: Mapping[str, PeerPort | None], now: float) -> dict[str, float]:
        """What each port says, and for how many seconds those that say nothing have not."""
        for node, port in ports.items():
            word = self._hear(port)
            self._heard[node] = policy.hear(self._heard.get(node), word)
            if word is Heard.SILENT:
                self._silent_since.setdefault(node, now)
            else:
                self._silent_since.pop(node, None)
        return {node: now - since for node, since in self._silent_since.items()}

    def _hear(self, port: PeerPort | None) -> Heard:
        if port is None:
            return Heard.SILENT
        if port.word is not None:
            return Heard.FRESH if port.word is Word.FRESH and port.whose == self._cluster else Heard.FORMED
        ours = any(self._peers[self._node] in m.peer_urls for m in port.members)
        return Heard.FRESH if ours and not port.formed else Heard.FORMED

    def _begin(self, view: MemberView, step: MemberStep, cause: Cause | None) -> None:
        datadir.claim(self._data, self._cluster, self._node)
        if step.move is MemberMove.JOIN:
            listed = policy.initial_cluster(view, step.members)
            words = self._view.spec.argv
            given = next(w for w in words if w.startswith("--initial-cluster="))
            self.values = {
                given: f"--initial-cluster={listed}",
                "--initial-cluster-state=new": "--initial-cluster-state=existing",
            }
        if step.move is not MemberMove.START:
            self._tell(step)
        self._told = ""
        self._world.update(policy.NAME, cause=cause)

    async def _wait(self, view: MemberView, step: MemberStep) -> None:
        self._hold_up(step.cause)
        try:
            await self._word.say(policy.word(view))
        except OSError as e:
            log.warning("etcd: cannot say on the peer port whether this node is new: %s", e.strerror)

    def _hold_up(self, cause: Cause) -> None:
        if self._view.state is State.CLEANING:
            self._world.update(policy.NAME, cause=cause)
        if cause.text != self._told:
            self._told = cause.text
            self._events.emit(policy.NAME, "member-wait", cause)
        self._wake()

    def _tell(self, step: MemberStep) -> None:
        self._events.emit(policy.NAME, f"member-{step.move.value}", step.cause)

    async def _change(self, view: MemberView, step: MemberStep) -> int | str:
        """Carry out a step that changes something; the id of an entry that it added, or why it could not be done."""
        living = view.living
        try:
            if step.move is MemberMove.ASIDE:
                await asyncio.to_thread(datadir.move_aside, self._data)
            elif living is not None and step.move is MemberMove.REMOVE:
                await self._members.remove(self._clients[living.node], step.id)
            elif living is not None:
                added = await self._members.add(self._clients[living.node], view.peer_url)
                self._tell(step)
                return added
        except (StoreError, OSError) as e:
            return str(e)
        self._tell(step)
        return 0

    def _cure(self) -> str:
        where = f"{self._data} and {self._record}"
        nodes = ", ".join(self._peers)
        return (
            f"where their data are lost for good, begin with an empty store: on each of {nodes} "
            f"yrnode stop etcd; then move {where} away on each; then yrnode start etcd on each"
        )

    # what is kept

    async def remember(self) -> None:
        """Now and then, while the member is ready: keep what it is part of, which only another start or another store
        can change."""
        life = self._view.instance, self._world.board.store_id
        if self._view.state is not State.READY or self._remembered == life:
            return
        now = await self._members.identity(self._clients[self._node], self._key)
        if now is None or not now.store:
            return
        if now != self._kept:
            try:
                atomic.write(self._record, {"cluster": now.cluster, "member": now.member, "store": now.store})
            except OSError as e:
                log.warning("cannot write %s: %s", e.filename, e.strerror)
                return
            self._kept = now
        if now.store == life[1]:
            self._remembered = life

    def _load(self) -> Kept | None:
        try:
            found = atomic.read(self._record)
            return Kept(int(found["cluster"]), int(found["member"]), str(found["store"])) if found else None
        except (atomic.Unreadable, KeyError, TypeError, ValueError):
            # that there was one is what counts
            return Kept()

    async def close(self) -> None:
        if self._settling is not None and not self._settling.done():
            self._settling.cancel()
            await asyncio.wait({self._settling})
        await self._word.hush()
        await self._members.close()
        await self._own.close()
