"""Carries out what is decided about groups and intents: kept on disk first, then acted on or told to the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from yrnode.components import datasystem
from yrnode.config.cluster import Cluster
from yrnode.config.digest import cache_digest, group_digest
from yrnode.config.layout import data_parallel_size, group_nodes
from yrnode.model.action import Action
from yrnode.model.board import BoardMove
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import NotNow
from yrnode.model.group import GroupMove, GroupRecord, Phase, Stage
from yrnode.model.snapshot import GroupView
from yrnode.node import operator
from yrnode.node.memory import Memory
from yrnode.node.shared import Shared
from yrnode.node.world import GroupPlace, World
from yrnode.policy import coupling
from yrnode.policy.intents import HEARD_EVERYWHERE_S
from yrnode.store.errors import StoreError
from yrnode.telemetry.events import EventLog

KEEP_AGAIN_S = 5.0
"""From one try to the next to write down what could not be written."""
WISHES = "yrnode"
"""The target of events about what operators want, which is of no single component."""
WORDS = {Stage.STOP: GroupMove.BUMP, Stage.GO: GroupMove.GO, Stage.FAILED: GroupMove.FAIL}
"""What a record that is newer than the last one tells of, whoever wrote it."""


def group_places(cluster: Cluster) -> dict[str, GroupPlace]:
    """By group, the workers' included."""
    coupled = coupling.coupled({n: g.restart_with for n, g in cluster.groups.items()})
    found = {
        n: GroupPlace(group_nodes(g), group_digest(cluster, n), coupled[n], data_parallel_size(g))
        for n, g in cluster.groups.items()
    }
    return {**found, datasystem.GROUP: GroupPlace(tuple(cluster.nodes), cache_digest(cluster))}


class Groups:
    """`free_port()`: a data-parallel port for a new life (OSError where none is free). `heads`: the groups whose rank
    0 is here and whose file names no port. `tell_once(target, text)`: an event for what goes on for a while."""

    def __init__(
        self,
        world: World,
        memory: Memory,
        events: EventLog,
        heads: frozenset[str],
        free_port: Callable[[], int],
        tell_once: Callable[[str, str], None],
    ) -> None:
        self._world, self._memory, self._events = world, memory, events
        self._heads, self._free_port, self._tell_once = heads, free_port, tell_once
        self.shared: Shared | None = None
        self._unkept_since: float | None = None

    def act(self, action: Action, now: float) -> bool:
        """Whether it was done or begun. What cannot be kept is not acted on, and tried again later."""
        match action.move:
            case GroupMove.LEARN:
                return self._learn(action, now)
            case BoardMove.HEED:
                return self._heed(action, now)
            case GroupMove.TELL:
                return self._tell(action)
        return self._perform(action)

    def _perform(self, action: Action) -> bool:
        if self.shared is None:
            return False
        self.shared.perform(action)
        # the round that follows is its outcome's to ask for
        return False

    def done(self, action: Action) -> None:
        """A transaction of ours was carried out. What it wrote is told when it is learned, but for what was lost."""
        if action.move in (GroupMove.PUT_BACK, BoardMove.UNFENCE, GroupMove.FORGIVE):
            first = action.record is not None and action.record.n == 1 and action.cause.reason is Reason.START
            if not first:
                n = action.record.n if action.record is not None else 0
                self._events.emit(action.target, action.move.value, action.cause, generation=n)

    def save(self, view: GroupView) -> bool:
        """Keep the group on disk; whether that could be done."""
        try:
            self._memory.save_group(view)
        except OSError as e:
            self._tell_once(view.name, f"the group's record cannot be written to {e.filename}: {e.strerror}")
            return False
        self._tell_once(view.name, "")
        return True

    def save_wishes(self) -> str:
        """Keep what operators want on disk; why that could not be done, else empty. It is tried again then."""
        try:
            self._memory.save_wishes(operator.stopped_by_wish(self._world), self._world.intents)
        except OSError as e:
            self._unkept_since = time.monotonic()
            why = f"{e.filename}: {e.strerror}"
            self._tell_once(WISHES, f"what operators want cannot be written to {why}; it holds until yrnode ends")
            return why
        self._unkept_since = None
        self._tell_once(WISHES, "")
        return ""

    def keep_again(self, now: float) -> None:
        """What could not be kept is, as soon as there is room. `now`: monotonic seconds."""
        if self._unkept_since is not None and now - self._unkept_since >= KEEP_AGAIN_S:
            self.save_wishes()

    def about_to_start(self, name: str) -> bool:
        """That a life is begun here is kept before its first process runs."""
        view = self._world.groups[name]
        return view.started == view.record.n or self.save(replace(view, started=view.record.n, ended=False))

    def ended_on_purpose(self) -> None:
        """At the daemon's own end: what was stopped on purpose is no loss at the next start."""
        for view in self._world.groups.values():
            if view.record.stage is Stage.GO:
                self.save(replace(view, ended=True))

    def _learn(self, action: Action, now: float) -> bool:
        record = action.record
        if record is None:
            raise ValueError(f"{action.move.value} of {action.target} without a record")
        before = self._world.groups[action.target]
        if not self.save(replace(before, record=record, ended=before.ended and record.n == before.record.n)):
            return False
        self._world.apply(action, now)
        if record.order > before.record.order:
            self._events.emit(
                action.target, WORDS[record.stage].value, _cause(record, self._world.me), generation=record.n
            )
        return True

    def _heed(self, action: Action, now: float) -> bool:
        # a full disk must not make this node deaf: an operator's word is obeyed also where it cannot be kept
        self._world.apply(action, now)
        self.save_wishes()
        self._events.emit(action.target, "heed", action.cause)
        if self.shared is not None:
            self.shared.heard()
        return True

    async def fence(self, target: str, who: str, why: str) -> None:
        """NotNow where the store has not taken it."""
        if self.shared is None:
            raise NotNow(f"fence {target}: yrnode has only just begun; say it again")
        try:
            taken = await self.shared.fence(target, who, why)
        except StoreError as e:
            raise NotNow(f"fence {target}: the store has not said that it took it: {e}; say it again") from None
        if not taken:
            raise NotNow(f"fence {target}: it has just come up, or is fenced already")

    async def told(self, verb: str, target: str) -> dict[str, Any]:
        """What an operator's word still needs of the store: a pause is known everywhere before it counts as one."""
        shared = self.shared
        if shared is None:
            return {}
        shared.heard()
        if verb not in ("pause", "resume"):
            return {}
        return {"absent": await shared.acknowledged(target, self._world.intents[target].seq, HEARD_EVERYWHERE_S)}

    def _tell(self, action: Action) -> bool:
        member, view = action.member, self._world.groups[action.target]
        if member is not None and member.phase is Phase.CLEAN:
            if view.cleaned != member.n and not self.save(replace(view, cleaned=member.n)):
                return False
            self._world.update_group(view.name, cleaned=member.n)
            if view.name in self._heads:
                action = replace(action, member=replace(member, rpc_port=self._free_port()))
        return self._perform(action)


def _cause(record: GroupRecord, me: str) -> Cause:
    """The record's cause, with who wrote it where that was another node."""
    cause = record.cause
    if record.by in ("", me):
        return cause
    return replace(cause, evidence="; ".join(filter(None, (cause.evidence, f"written by {record.by}"))))
