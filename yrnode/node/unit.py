"""Carries out the moves of one component: clean, start, stop. One task at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from yrnode.checks import disk
from yrnode.checks.base import Tools
from yrnode.components.node import read_death
from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import Move, State
from yrnode.model.verdict import Result
from yrnode.node import adoption
from yrnode.node.members import Membership
from yrnode.node.pace import Steps
from yrnode.node.prober import Prober
from yrnode.node.world import World
from yrnode.policy.memory import shortage
from yrnode.process import table
from yrnode.process.adopt import adopt
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance
from yrnode.process.launch import LaunchError, Owner, launch
from yrnode.process.tail import instance_lines
from yrnode.residue import clear, datadir, files, memory, shm

log = logging.getLogger("yrnode.node")

AGAIN_S = 1.0


class Unit:
    """`wake` asks the loop for a round. `member`: for etcd, the others of its cluster.

    `removed`: told of leftovers that went, perhaps in a thread: the component, its plane, what kind, how many.
    `steps`: those of all checks of this daemon. `phase_s`: when its own are due, see `pace`."""

    def __init__(
        self,
        name: str,
        world: World,
        tools: Tools,
        owner: Owner,
        wake: Callable[[], None],
        steps: Steps,
        phase_s: float,
        member: Membership | None = None,
        removed: Callable[[str, str, str, int], None] | None = None,
    ) -> None:
        self.name = name
        self._world = world
        self._tools = tools if member is None else member.equip(tools)
        self._member = member
        self._owner = owner
        self._removed = removed
        self._steps, self._phase_s = steps, phase_s
        self._wake = wake
        self.leave: Callable[[str], Awaitable[None]] | None = None
        """What comes before the end of an instance that serves: it is to get no more requests."""
        self._instance: Instance | None = None
        self._leaving: Instance | None = None
        self._prober: Prober | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def view(self) -> ComponentView:
        return self._world.components[self.name]

    @property
    def instance(self) -> Instance | None:
        """The present instance, None once it is being ended."""
        return self._instance

    @property
    def watched(self) -> set[int]:
        return {pid for i in (self._instance, self._leaving) if i is not None for pid in i.watched}

    def perform(self, move: Move, values: Mapping[str, str]) -> None:
        """Begin what a move asks for; facts arrive in the world later, each with a wake-up."""
        match move:
            case Move.CLEAN:
                self._begin(self._clean())
            case Move.START:
                self._start(values)
            case Move.READY:
                self._world.reset_checks(self.name)
                self._note_ready()
            case Move.STOP:
                self._begin(self._stop(self._task, self._instance, self._prober))
                self._instance = self._prober = None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work, name=self.name)
        self._task.add_done_callback(lambda _: self._wake())

    async def _clean(self) -> None:
        spec = self.view.spec
        try:
            await self._wait_for_room()
            blocked = await clear.clear(spec, self._owner, self._world.components, self._note)
            blocked = (
                blocked or self._claim_data_dir() or await self._settle_member() or await self._wait_for_memory()
            )
        except Exception as e:
            log.exception("%s: clean-up failed", self.name)
            blocked = Cause(Reason.RESIDUE, f"clean-up failed: {e!r}", "", self.name)
        self._world.update(self.name, cleaned=blocked is None, blocked=blocked)

    async def _wait_for_room(self) -> None:
        """A full disk is no fault of the component: it waits until its record and its log can be written."""
        spec, cause = self.view.spec, self.view.cause
        places = (self._owner.run_dir, spec.log.parent, spec.dir)
        while self.view.state is State.CLEANING and (why := await asyncio.to_thread(disk.why_unwritable, places)):
            self._world.update(self.name, cause=Cause(Reason.RESIDUE, f"not started: {why}", "", self.name))
            self._wake()
            await asyncio.sleep(AGAIN_S)
        self._go_on(cause)

    def _go_on(self, cause: Cause | None) -> None:
        """What it has waited for is there: it starts for the reason that it had before."""
        if self.view.state is State.CLEANING:
            self._world.update(self.name, cause=cause)

    async def _wait_for_memory(self) -> Cause | None:
        """Until there is room beside what clients of a dead instance still map. A cause when there never will be."""
        need, cause, since = self.view.spec.memory, self.view.cause, time.monotonic()
        while need is not None and self.view.state is State.CLEANING:
            seen = await asyncio.to_thread(memory.free, need.huge)
            if seen is None:
                return None
            if seen.free < need.size:
                found = await asyncio.to_thread(memory.held, need, self._owner)
                seen = replace(seen, held=found, short_since=since)
            why = shortage(self._world.update(self.name, memory=seen))
            if why is None:
                self._go_on(cause)
            if why is None or why.reason is Reason.CONFIGURATION:
                return why
            self._world.update(self.name, cause=why)
            self._wake()
            await asyncio.sleep(AGAIN_S)
        return None

    async def _settle_member(self) -> Cause | None:
        return await self._member.settle() if self._member is not None else None

    def _claim_data_dir(self) -> Cause | None:
        spec = self.view.spec
        directory = spec.data_dir
        if directory is None:
            return None
        cluster, node = self._owner.name.split("/", 1)
        why = datadir.why_foreign(directory, cluster, node) or datadir.why_unwritable(directory)
        why = why or datadir.why_locked(directory)
        if not why:
            try:
                datadir.claim(directory, cluster, node)
            except OSError as e:
                why = f"cannot write {e.filename}: {e.strerror}"
        return Cause(Reason.CONFIGURATION, why, "", self.name) if why else None

    def _start(self, values: Mapping[str, str]) -> None:
        view = self.view
        if self._member is not None:
            values = {**values, **self._member.values}
        try:
            instance = launch(view.spec, view.generation, self._owner, self._ended, values, view.life)
        except LaunchError as e:
            # between the look at the disks and now they may have become full
            reason = Reason.RESIDUE if e.no_room else Reason.START_FAILED
            self._died(Cause(reason, str(e), "", self.name))
            return
        self._world.update(self.name, instance=instance.id, pid=instance.pid, began=instance.record.began)
        self._hold(instance)

    def _hold(self, instance: Instance) -> None:
        self._instance = instance
        self._prober = Prober(
            instance.spec,
            instance.id,
            self._tools,
            self._result,
            lambda: self.view.checks,
            lambda: instance.pid,
            self._steps,
            self._phase_s,
        )

    def adopt(self) -> tuple[str, ...]:
        """Take over what an earlier daemon left running of this component; what is to be said about it."""
        found = adoption.find(self.view, self._owner)
        instance = adopt(self.view.spec, found.record, self._owner, self._ended) if found.record else None
        if instance is None:
            return found.notes
        adoption.take_over(self._world, self.name, instance, time.monotonic())
        self._hold(instance)
        return found.notes

    def _note_ready(self) -> None:
        instance = self._instance
        if instance is None:
            return
        try:
            instance.keep(replace(instance.record, ready_at=self.view.ready_at))
        except OSError as e:
            # it is adopted as starting then, and proves itself again
            log.warning("%s: cannot write %s: %s", self.name, e.filename, e.strerror)

    async def note(self, look: table.Look) -> None:
        """Keep what a later daemon needs to know this instance's leftovers by. `look`: of just now."""
        if self._instance is not None:
            await self._instance.note(look)

    async def remember(self) -> None:
        """Keep what etcd's member is part of."""
        if self._member is not None:
            await self._member.remember()

    def _ended(self, how: Exit) -> None:
        at = time.monotonic()
        instance, view = self._instance, self.view
        if instance is None or view.death is not None:
            return
        lines = instance_lines(view.spec.log, instance.id)
        main = instance.record.main
        pid = main.pid if main is not None else None
        self._died(read_death(view.spec, how, view.ready_at is not None, lines, pid), at)

    def _died(self, cause: Cause, at: float | None = None) -> None:
        self._world.update(self.name, death=cause, died_at=time.monotonic() if at is None else at)
        self._wake()

    def _result(self, component: str, instance: str, check: str, result: Result) -> None:
        if self._instance is not None and self.view.pid != self._instance.pid:
            self._world.update(self.name, pid=self._instance.pid)
        if self._world.record_result(component, instance, check, result, time.monotonic()):
            self._wake()

    async def _stop(
        self, before: asyncio.Task[None] | None, instance: Instance | None, prober: Prober | None
    ) -> None:
        self._leaving = instance
        if before is not None:
            # a clean-up under way is let to its end
            await asyncio.wait([before])
        if prober is not None:
            await prober.close()
        if instance is not None:
            if self.leave is not None:
                await self.leave(self.name)
            while why := await self._end(instance):
                self._world.update(self.name, cause=Cause(Reason.RESIDUE, why, "", self.name))
                self._wake()
                await asyncio.sleep(AGAIN_S)
            instance.close()
            await asyncio.to_thread(self._sweep, instance)
        self._leaving = None
        self._world.update(self.name, gone=True)

    async def _end(self, instance: Instance) -> str:
        """Empty when nothing of it is left; else why not. A stop is never given up: nothing may start on top."""
        try:
            left = await instance.stop(instance.spec.stop_grace_s)
        except Exception as e:
            log.exception("%s: stop failed", self.name)
            return f"stop failed: {e!r}"
        return f"cannot be ended: {', '.join(map(str, left))}" if left else ""

    def _sweep(self, instance: Instance) -> None:
        # not fatal here: the clean-up before the next start tries again, and refuses to start over what is left
        dead = instance.shm if instance.died_hard else ()
        removals: list[Callable[[], object]] = [
            instance.forget,
            lambda: self._note(clear.Kind.MEMORY, len(shm.remove(self._owner.run_dir, dead, instance.record.began))),
            lambda: self._note(clear.Kind.FILE, files.remove_stale(instance.spec.stale)),
        ]
        for remove in removals:
            try:
                remove()
            except OSError as e:
                log.warning("%s: cannot remove %s: %s", self.name, e.filename, e.strerror)

    def _note(self, kind: clear.Kind, count: int) -> None:
        if self._removed is not None:
            self._removed(self.name, self.view.plane.value, kind.value, count)

    async def close(self) -> None:
        """Let go without ending anything."""
        if self._prober is not None:
            await self._prober.close()
        if self._instance is not None:
            self._instance.close()
        if self._member is not None:
            await self._member.close()
