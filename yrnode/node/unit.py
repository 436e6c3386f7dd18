"""Carries out the moves of one component: clean, start, stop. One task at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from yrnode.checks.base import Tools
from yrnode.components.node import read_death
from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import Move
from yrnode.model.verdict import Result
from yrnode.node.prober import Prober
from yrnode.node.world import World
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance, LaunchError, launch
from yrnode.process.tail import instance_lines
from yrnode.residue import clear, datadir, files

log = logging.getLogger("yrnode.node")

AGAIN_S = 1.0


class Unit:
    """`owner` is "<cluster>/<node>", `home` the state directory. `wake` asks the loop for a round."""

    def __init__(
        self, name: str, world: World, tools: Tools, owner: str, home: Path, wake: Callable[[], None]
    ) -> None:
        self.name = name
        self._world = world
        self._tools = tools
        self._owner = owner
        self._home = home
        self._wake = wake
        self._instance: Instance | None = None
        self._prober: Prober | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def view(self) -> ComponentView:
        return self._world.components[self.name]

    @property
    def watched(self) -> set[int]:
        return self._instance.watched if self._instance else set()

    def perform(self, move: Move, values: Mapping[str, str]) -> None:
        """Begin what a move asks for; facts arrive in the world later, each with a wake-up."""
        match move:
            case Move.CLEAN:
                self._begin(self._clean())
            case Move.START:
                self._start(values)
            case Move.READY:
                self._world.reset_checks(self.name)
                if self._instance is not None:
                    self._instance.note_shared_memory()
            case Move.STOP:
                self._begin(self._stop(self._task))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work, name=self.name)
        self._task.add_done_callback(lambda _: self._wake())

    async def _clean(self) -> None:
        spec = self.view.spec
        try:
            blocked = await clear.clear(spec, self._owner, self._home) or self._claim_data_dir()
        except Exception as e:
            log.exception("%s: clean-up failed", self.name)
            blocked = Cause(Reason.RESIDUE, f"clean-up failed: {e!r}", "", self.name)
        self._world.update(self.name, cleaned=blocked is None, blocked=blocked)

    def _claim_data_dir(self) -> Cause | None:
        spec = self.view.spec
        directory = spec.data_dir
        if directory is None:
            return None
        cluster, node = self._owner.split("/", 1)
        why = datadir.why_foreign(directory, cluster, node) or datadir.why_locked(directory)
        if not why:
            try:
                datadir.claim(directory, cluster, node)
            except OSError as e:
                why = f"cannot write {e.filename}: {e.strerror}"
        return Cause(Reason.CONFIGURATION, why, "", self.name) if why else None

    def _start(self, values: Mapping[str, str]) -> None:
        view = self.view
        try:
            self._instance = launch(view.spec, view.generation, self._owner, self._home, self._ended, values)
        except LaunchError as e:
            self._instance = None
            self._world.update(self.name, death=Cause(Reason.START_FAILED, str(e), "", self.name))
            self._wake()
            return
        instance = self._instance
        self._world.update(self.name, instance=instance.id, pid=instance.pid)
        self._prober = Prober(
            view.spec, instance.id, self._tools, self._result, lambda: self.view.checks, lambda: instance.pid
        )

    def _ended(self, how: Exit) -> None:
        instance, view = self._instance, self.view
        if instance is None or view.death is not None:
            return
        lines = instance_lines(view.spec.log, instance.id)
        self._world.update(self.name, death=read_death(view.spec, how, view.ready_at is not None, lines))
        self._wake()

    def _result(self, component: str, instance: str, check: str, result: Result) -> None:
        if self._instance is not None and self.view.pid != self._instance.pid:
            self._world.update(self.name, pid=self._instance.pid)
        if self._world.record_result(component, instance, check, result, time.monotonic()):
            self._wake()

    async def _stop(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            # a clean-up under way is let to its end
            await asyncio.wait([before])
        if self._prober is not None:
            await self._prober.close()
            self._prober = None
        instance = self._instance
        if instance is not None:
            while why := await self._end(instance):
                self._world.update(self.name, cause=Cause(Reason.RESIDUE, why, "", self.name))
                self._wake()
                await asyncio.sleep(AGAIN_S)
            instance.close()
            self._instance = None
            await asyncio.to_thread(self._sweep, instance)
        self._world.update(self.name, gone=True)

    async def _end(self, instance: Instance) -> str:
        """Empty when nothing of it is left; else why not. A stop is never given up: nothing may start on top."""
        try:
            left = await instance.stop(self.view.spec.stop_grace_s)
        except Exception as e:
            log.exception("%s: stop failed", self.name)
            return f"stop failed: {e!r}"
        return f"cannot be ended: {', '.join(map(str, left))}" if left else ""

    def _sweep(self, instance: Instance) -> None:
        try:
            files.remove_shm(instance.shm)
            files.remove_stale(instance.spec.stale)
        except OSError as e:
            # not fatal here: the clean-up before the next start tries again, and refuses to start over it
            log.warning("%s: cannot remove %s: %s", self.name, e.filename, e.strerror)

    async def close(self) -> None:
        """Let go without ending anything."""
        if self._prober is not None:
            await self._prober.close()
        if self._instance is not None:
            self._instance.close()
