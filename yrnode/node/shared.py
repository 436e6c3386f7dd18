"""The keys that all nodes share: read by one watch, written by transactions that compare what was read."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from yrnode.model.action import Action
from yrnode.model.board import Board, BoardMove, Peer
from yrnode.model.group import GroupKind, GroupMove, GroupRecord, Member
from yrnode.model.snapshot import GroupView
from yrnode.node.alike import Offsets
from yrnode.node.memory import Memory
from yrnode.node.world import World
from yrnode.policy import cache, gather, trust
from yrnode.store import board, codec
from yrnode.store.errors import StoreError
from yrnode.store.interface import Compare, Delete, Event, Get, Op, Put, Store, absent, mod_is, unchanged, value_is
from yrnode.store.keys import ClusterKeys, DatasystemKeys
from yrnode.store.lease import KeptLease

log = logging.getLogger("yrnode.node")

HEARD_S = 0.05
AGAIN_S = 0.2
"""After a transaction that was not done: by then the watch has brought what it was lost to."""
AHEAD_S = 2.0
"""For how long what a transaction has shown counts before the watch has brought it."""
REPEAT_S, REPEAT_EACH_S = (5.0, 60.0), 2.0
"""After which a node's key is put again, first and later; and at least for each node, so that many ask for little."""
LIVE_S = 1.0
"""A watch that has been whole for so long brings keys as they are put."""
LOST = "somebody else has written the record"
"""A swap that is lost brings the record that it was lost to: nothing is to be waited for."""


@dataclass(frozen=True)
class Ahead:
    """A key as a transaction has shown it, before the watch has brought it. `at`: monotonic seconds."""

    revision: int
    at: float
    group: str
    record: GroupRecord | None = None
    member: Member | None = None
    node: str = ""

    def over(self, before: Board) -> Board:
        if self.record is not None:
            return before.with_record(self.group, self.record, self.revision)
        return before if self.member is None else before.with_member(self.group, self.node, self.member)


class Shared:
    """`world` gets the board; `wake` asks for a round; `done(action)` hears of each transaction that was carried out.

    `cluster_name`: the datasystem's own. `worker_of`: the worker's address on each node.
    """

    def __init__(
        self,
        store: Store,
        world: World,
        keys: ClusterKeys,
        peer: Peer,
        *,
        cluster_name: str,
        worker_of: Mapping[str, str],
        wake: Callable[[], None],
        done: Callable[[Action], None],
        memory: Memory,
    ) -> None:
        self._store, self._world, self._keys, self._peer = store, world, keys, peer
        self._cluster_name, self._worker_of = cluster_name, worker_of
        self._wake, self._done = wake, done
        self._memory = memory
        store_id, settling = memory.load_store()
        self._known = trust.Known(store_id, settling and len(world.peers) > 1)
        self._ahead: list[Ahead] = []
        self._lease = KeptLease(store, trust.LEASE_S, self._granted)
        self._watch = store.watch(keys.root)
        self._watch.on_proof = wake
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._putting = asyncio.Lock()
        self._offsets = Offsets()
        self._lease.start()
        self._reading = asyncio.create_task(self._read(), name="shared keys")
        if len(world.peers) > 1:
            self._begin(self._repeat(), "own key")

    def refresh(self, now: float) -> None:
        """Tell the world how far the board can be trusted at this moment. A watch is as good as our lease."""
        watch, world = self._watch, self._world
        world.proven_at = watch.proven_at or 0.0
        whole = watch.unbroken_since is not None
        world.fresh = whole and trust.fresh(world.board, now, world.proven_at, self._lease.alive)
        self._know(self._known.later(now))
        world.settles_at, world.settled = self._known.until, self._known.settled(now)
        if cache.waits_for_proof(world.components.values(), world.proven_at, world.store_since):
            watch.prove()
        world.note_absent(now, watch.unbroken_since if world.fresh else None)

    # reading

    async def _read(self) -> None:
        async for batch in self._watch:
            now = time.monotonic()
            after = self._ahead_of(board.fold(self._world.board, batch, self._keys), now)
            self._world.take_board(after, now)
            self._note_clocks(batch, now)
            # alone in a cluster there is nobody to wait for
            if len(self._world.peers) > 1:
                self._know(self._known.read(self._world.groups.values(), after, now))
            self._wake()

    def _note_clocks(self, batch: Iterable[Event], now: float) -> None:
        """What comes as it is put tells the time on its node's clock."""
        since, nodes = self._watch.unbroken_since, self._world.board.nodes
        if since is None or now - since < LIVE_S:
            return
        for event in batch:
            node = event.key.removeprefix(self._keys.nodes)
            if event.kv is not None and node in nodes and node != self._world.me:
                self._offsets.note(node, nodes[node].at, time.time())
                self._world.offsets = self._offsets.all()

    def _ahead_of(self, after: Board, now: float) -> Board:
        """What our own transactions have shown already is not taken back by events from before them."""
        self._ahead = [a for a in self._ahead if a.revision > after.revision and now - a.at < AHEAD_S]
        for a in self._ahead:
            after = a.over(after)
        return after

    def _know(self, known: trust.Known) -> None:
        before, self._known = self._known, known
        if known.kept != before.kept:
            try:
                self._memory.save_store(*known.kept)
            except OSError as e:
                log.warning("the store that this node knows cannot be written to %s: %s", e.filename, e.strerror)

    # writing

    def perform(self, action: Action) -> None:
        """Begin a transaction; the group is busy, or the intent being said, until its outcome is known.

        It compares the keys as the decision has seen them: what comes in before it is sent makes it fail.
        """
        seen = self._world.board
        if isinstance(action.move, GroupMove):
            self._world.update_group(action.target, busy=True)
        else:
            self._world.saying = self._world.saying | {action.target}
        self._begin(self._carry_out(action, seen), f"{action.move.value} {action.target}")

    async def _carry_out(self, action: Action, seen: Board) -> None:
        try:
            why = await self._transact(action, seen)
        except StoreError as e:
            # it may have been done all the same: the watch will tell, and what was compared no longer holds then
            why = str(e)
        except Exception as e:
            log.exception("%s %s", action.move.value, action.target)
            why = repr(e)
        if why:
            log.debug("%s of %s was not done: %s", action.move.value, action.target, why)
            if why != LOST:
                await asyncio.sleep(AGAIN_S)
        else:
            self._done(action)
        if isinstance(action.move, GroupMove):
            self._world.update_group(action.target, busy=False)
        else:
            self._world.saying = self._world.saying - {action.target}
        self._wake()

    async def _transact(self, action: Action, seen: Board) -> str:
        match action.move:
            case GroupMove.TELL if action.member is not None:
                return await self._tell(action.target, action.member)
            case GroupMove() if action.record is not None:
                return await self._swap(action, action.record, seen)
            case BoardMove.SAY if action.intent is not None:
                there = seen.intents.get(action.target)
                key = self._keys.intent(action.target)
                put = Put(key, codec.dump(codec.intent_dict(action.intent)))
                done = await self._store.txn([mod_is(key, there.revision if there else 0)], [put])
                return "" if done.succeeded else "somebody else has said something meanwhile"
            case BoardMove.UNFENCE:
                return await self._unfence(action.target, seen)
        raise ValueError(f"{action.move.value} is no transaction")

    async def _swap(self, action: Action, record: GroupRecord, seen: Board) -> str:
        group = action.target
        world, key = self._world, self._keys.record(group)
        there = seen.records.get(group)
        if action.move is not GroupMove.PUT_BACK:
            record = replace(record, by=world.me, at=time.time())
        compares = [mod_is(key, there.revision if there else 0)]
        then: list[Op] = [Put(key, codec.dump(codec.record_dict(record)))]
        also = {g: replace(r, by=record.by, at=record.at) for g, r in action.also.items()}
        compares += [mod_is(self._keys.record(g), seen.records[g].revision) for g in also]
        then += [Put(self._keys.record(g), codec.dump(codec.record_dict(r))) for g, r in also.items()]
        if action.move is not GroupMove.PUT_BACK:
            compares.append(self._intents_as_read(seen))
        if action.move is GroupMove.GO:
            view = world.groups[group]
            fences = gather.fences_used(view, seen)
            compares += [mod_is(self._keys.fence(n), revision) for n, revision in fences.items()]
            if view.kind is GroupKind.CACHE:
                compares.append(value_is(self._keys.store, record.store.encode()))
                why = await self._clear(view, seen, compares, then)
                if why:
                    return why
        done = await self._store.txn(compares, then, [Get(key)])
        if done.succeeded:
            for name, written in ((group, record), *also.items()):
                self._learn(name, written, done.revision)
            return ""
        if done.got and done.got[0]:
            kv = done.got[0][0]
            found = codec.read(codec.record_of, kv.value)
            if found is not None:
                self._learn(group, found, kv.mod_revision)
            if kv.mod_revision != (there.revision if there else 0):
                return LOST
        return "a record, an intent or a fence has changed meanwhile"

    def _intents_as_read(self, seen: Board) -> Compare:
        """No intent was put since the board was read. Intents are never deleted, so that this is enough."""
        return Compare(self._keys.intents, "MOD", "LESS", seen.revision + 1, prefix=True)

    async def _clear(self, view: GroupView, seen: Board, compares: list[Compare], then: list[Op]) -> str:
        """What the datasystem keeps goes with the go, unless a worker that may live has a key there."""
        keys = DatasystemKeys(self._cluster_name)
        workers = await self._store.list(keys.workers)
        told = seen.phases(view.name)
        gone = {self._worker_of[n] for n in view.nodes if n in told and told[n].n == view.record.n}
        others = [a for kv in workers.items if (a := kv.key.removeprefix(keys.workers)) not in gone]
        if others:
            return f"the store still has the worker {', '.join(others)}, which is not proven gone"
        compares += unchanged(workers)
        then.append(Delete(keys.root, prefix=True))
        return ""

    def _learn(self, group: str, record: GroupRecord, revision: int) -> None:
        """What a transaction has shown is as good as what the watch brings, and earlier."""
        there = self._world.board.records.get(group)
        if there is None or there.revision < revision:
            self._shown(Ahead(revision, time.monotonic(), group, record=record))

    async def _tell(self, group: str, member: Member) -> str:
        lease = self._lease.id
        if not lease:
            return "no lease yet"
        key = self._keys.member(group, self._world.me)
        revision = await self._store.put(key, codec.dump(codec.member_dict(member)), lease=lease)
        self._shown(Ahead(revision, time.monotonic(), group, member=member, node=self._world.me))
        return ""

    def _shown(self, ahead: Ahead) -> None:
        self._ahead.append(ahead)
        self._world.board = ahead.over(self._world.board)

    async def _unfence(self, node: str, seen: Board) -> str:
        fence = seen.fences.get(node)
        if fence is None:
            return ""
        compares = [mod_is(self._keys.fence(node), fence.revision)]
        compares += [
            mod_is(self._keys.record(g), there.revision)
            for g, there in seen.records.items()
            if g in self._world.groups
        ]
        done = await self._store.txn(compares, [Delete(self._keys.fence(node))])
        return "" if done.succeeded else "a record has changed meanwhile"

    def say_facts(self, facts: Mapping[str, str]) -> None:
        """What all nodes should have alike, as this one has it, with its key from now on."""
        self._peer = replace(self._peer, facts=facts)
        if not self._closed:
            self.heard()

    async def _repeat(self) -> None:
        """The key is put again now and then: from when it comes, the others see how far their clocks are apart."""
        pause, longest = REPEAT_S
        while True:
            await asyncio.sleep(max(pause, REPEAT_EACH_S * len(self._world.peers)))
            await self._hear()
            pause = min(2 * pause, longest)

    def heard(self) -> None:
        """Tell which intents this node keeps now: whoever said them waits for that."""
        self._begin(self._hear(), "heard")

    async def _hear(self) -> None:
        try:
            if self._lease.id:
                await self._granted(self._lease.id)
        except StoreError as e:
            log.info("what this node has heard could not be told: %s", e)

    async def acknowledged(self, target: str, seq: int, seconds: float) -> list[str]:
        """Wait until every node that is there has kept this intent; the nodes of the file that have not."""
        deadline = time.monotonic() + seconds
        while True:
            nodes = self._world.board.nodes
            late = [n for n in self._world.peers if n not in nodes or nodes[n].heard.get(target, 0) < seq]
            waits = [n for n in late if n in nodes]
            if not self._world.fresh or not waits or time.monotonic() >= deadline:
                return late
            await asyncio.sleep(HEARD_S)

    async def fence(self, node: str, by: str, why: str) -> bool:
        """An operator's word that a node is off; whether it was taken: not where its key, or a fence, is there.
        StoreError where it cannot be put."""
        value = codec.dump({"by": by, "why": why, "at": time.time()})
        key = self._keys.fence(node)
        return (await self._store.txn([absent(key), absent(self._keys.node(node))], [Put(key, value)])).succeeded

    async def _granted(self, lease: int) -> None:
        """A new lease: this node's key. What it said of its groups ends with the old lease, and is told anew."""
        # one after another, so that the last put is the newest
        async with self._putting:
            heard = {target: intent.seq for target, intent in self._world.intents.items()}
            peer = replace(self._peer, at=time.time(), heard=heard)
            await self._store.put(self._keys.node(self._world.me), codec.dump(codec.peer_dict(peer)), lease=lease)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, *, revoke: bool = True) -> None:
        """Stop reading and writing. With `revoke` peers see at once that it has gone, else when its lease ends."""
        self._closed = True
        tasks = [self._reading, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._watch.close()
        await self._lease.close(revoke=revoke)
