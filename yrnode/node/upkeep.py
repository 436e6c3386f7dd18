"""Every few seconds, beside the rounds: outputs are bounded, directories are looked at, leftovers are noted, and how
long starts took.

Nothing here starts or stops anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from yrnode.checks import disk
from yrnode.components.node import client_logs, own_logs
from yrnode.config.layout import Places
from yrnode.model.cause import Cause, Reason
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.verdict import Result, Tally, fail, ok
from yrnode.node import starts
from yrnode.node.pace import HERE_S, pause_s
from yrnode.node.world import World
from yrnode.policy import health
from yrnode.process import rotate, table
from yrnode.telemetry.events import EventLog

log = logging.getLogger("yrnode.node")

PERIOD_S = 5.0
OWN_LOGS_BYTES = 2 * 1024**3
"""More than the bounds that we give the worker for its own logs add up to."""
LOGS = "logs"
_MB = 1024**2


def directories(own: Places, world: World) -> dict[str, Path]:
    """What must be writable on a node, by the cluster file's key."""
    found = {"state_dir": own.state_dir, "run_dir": own.run_dir, "log_dir": own.log_dir}
    for c in world.components.values():
        if c.spec.data_dir is not None and c.spec.data_dir.parent != own.state_dir:
            found["etcd.data_dir"] = c.spec.data_dir
    return found


class Notes(Protocol):
    async def note(self, look: table.Look) -> None: ...

    async def remember(self) -> None: ...


@dataclass(frozen=True)
class _Output:
    spec: ComponentSpec
    pid: int | None


class Upkeep:
    """`places`: the directories to look at, by the cluster file's key for them."""

    def __init__(
        self,
        world: World,
        places: Mapping[str, Path],
        units: Mapping[str, Notes],
        events: EventLog,
        wake: Callable[[], None],
        period_s: float = PERIOD_S,
    ) -> None:
        self._world = world
        self._places = places
        self._units = units
        self._events = events
        self._wake = wake
        self._growth = disk.Growth()
        self._starts = starts.History(places["state_dir"] / starts.NAME)
        self._checks = {name: CheckSpec(name, "disk", period_s, period_s, failures=1) for name in (*places, LOGS)}
        world.node = {name: Tally() for name in self._checks}
        self._task = asyncio.create_task(self._run(period_s), name="upkeep")

    async def _run(self, period_s: float) -> None:
        while True:
            try:
                await self._look()
            except Exception:
                log.exception("upkeep failed")
            # its threads work while the loop has nothing to do
            await asyncio.sleep(pause_s(time.monotonic(), period_s, HERE_S + 0.25))

    async def _look(self) -> None:
        outputs = [_Output(c.spec, c.pid) for c in self._world.components.values()]
        found = await asyncio.to_thread(self._work, outputs)
        for name, (result, culprit) in found.items():
            self._fold(name, result, culprit)
        # one look at the process table for all: on a large host each takes long
        look = await asyncio.to_thread(table.Look)
        for unit in self._units.values():
            await unit.note(look)
        for unit in self._units.values():
            await unit.remember()
        self._world.starts = await asyncio.to_thread(self._starts.look, self._world.snapshot(time.monotonic()))

    def _fold(self, name: str, result: Result, culprit: str) -> None:
        before = self._world.node[name]
        result = self._world.heard(result, before.result)
        after = health.fold(before, result, time.monotonic(), self._checks[name])
        self._world.node = {**self._world.node, name: after}
        if after.failing != before.failing:
            reason = Reason.CHECK if after.failing else Reason.RECOVERED
            what = "check-failed" if after.failing else "check-passed"
            self._events.emit("node", what, Cause(reason, result.evidence, "", culprit))
            self._wake()

    def _work(self, outputs: list[_Output]) -> dict[str, tuple[Result, str]]:
        """In a thread. Every result with the component whose doing it is."""
        problems: dict[str, str] = {}
        for output in outputs:
            for path in (output.spec.log, *client_logs(output.spec)):
                try:
                    self._bound(path)
                except OSError as e:
                    problems[output.spec.name] = f"{path} cannot be rotated: {e.strerror}"
            if output.pid and (size := rotate.unlinked(output.pid)) is not None:
                problems[output.spec.name] = (
                    f"{output.spec.log} of {output.spec.name} was removed while it is written "
                    f"({size / _MB:.1f} MB in it, and nobody can read it); restart {output.spec.name}"
                )
            own = disk.size_of(own_logs(output.spec))
            if own > OWN_LOGS_BYTES:
                problems[output.spec.name] = (
                    f"{output.spec.name}'s own logs hold {own / _MB:.0f} MB: they are not bounded"
                )
        self._growth.note(time.monotonic(), {o.spec.name: _files(o.spec) for o in outputs})
        found = {name: self._place(name, path) for name, path in self._places.items()}
        culprit = next(iter(problems), "")
        found[LOGS] = (fail("; ".join(problems.values())) if problems else ok("bounded"), culprit)
        return found

    def _bound(self, path: Path) -> None:
        done = rotate.rotate(path)
        if done is not None and done.lost:
            log.warning("%s: %d MB of older output dropped, no room for it", path, done.lost // _MB)

    def _place(self, name: str, path: Path) -> tuple[Result, str]:
        # before the first start it may not be there yet
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
        culprit, words = self._growth.writer(disk.device_of(path))
        result = disk.probe(name, path, words)
        return result, culprit

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def _files(spec: ComponentSpec) -> Iterable[Path]:
    own = (spec.log, *rotate.rotations(spec.log), *client_logs(spec), spec.dir)
    return own if spec.data_dir is None or spec.data_dir == spec.dir else (*own, spec.data_dir)
