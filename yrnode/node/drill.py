"""Faults on purpose: what `yrnode drill` does to a running component, from within, by proof and not by name.

A fault that a drill injected does not count against any budget.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yrnode.components import datasystem
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import NotNow, UsageError
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import Plane, State
from yrnode.node import operator, radius
from yrnode.node.operator import Radius
from yrnode.node.world import World
from yrnode.process import table
from yrnode.process.instance import Instance, signal_all
from yrnode.telemetry.events import EventLog

STORE_DOWN_S = 8.0
ENGINE = "VLLM::EngineC"
"""The kernel keeps 15 characters of a name."""
DAEMON = "daemon-kill"
YRNODE = "yrnode"
_STOPPED_S = 60.0


class Drills:
    """`instance(name)`: the present one of a component, None once it is being ended. `wake` asks for a round."""

    def __init__(
        self, world: World, events: EventLog, instance: Callable[[str], Instance | None], wake: Callable[[], None]
    ) -> None:
        self._world, self._events, self._instance, self._wake = world, events, instance, wake
        self._work: asyncio.Task[None] | None = None

    async def ask(self, drill: str, target: str, who: str, why: str, dry_run: bool) -> dict[str, Any]:
        """See `api.node.Node.drill`."""
        words = f"drill {drill} {target} by {who}" + (f": {why}" if why else "")
        cause = Cause(Reason.OPERATOR, words)
        self._refuse(drill, target)
        procs: list[table.Proc] = []
        if drill != DAEMON and not drill.startswith("store-"):
            procs = await self._look(drill, target)
        told = reach(self._world, drill, target, time.monotonic(), not dry_run)
        if dry_run:
            return told
        # from here to the event nothing else runs: who dies at once is seen to die after it
        if procs:
            self._inject(drill, target, procs)
        elif drill != DAEMON:
            self._take_store_away(drill, target, cause)
        view = self._world.components.get(target)
        about = (view.instance, view.generation) if view is not None else ("", 0)
        event = self._events.emit(target, "drill", cause, instance=about[0], generation=about[1])
        self._wake()
        return {**told, "seq": event.seq}

    def end(self) -> None:
        """A store that was taken away is no longer brought back."""
        if self._work is not None:
            self._work.cancel()

    def _refuse(self, drill: str, target: str) -> None:
        if self._world.closing:
            raise NotNow("yrnode is going down; a drill needs it running")
        if drill == DAEMON:
            if target != YRNODE:
                raise UsageError(f"drill {drill} is for {YRNODE} itself, not for {target}")
            return
        view = self._world.components.get(target)
        if view is None:
            raise UsageError(f"no component {target!r} on this node; there are: {', '.join(self._world.components)}")
        refuse(drill, view)
        if not operator.wanted(self._world, view) or view.restart is not None:
            raise NotNow(f"{target} is about to stop; a drill needs it ready")

    async def _look(self, drill: str, target: str) -> list[table.Proc]:
        """The processes to hit, of an instance that is still the present one."""
        instance = self._instance(target)
        found = await victims(drill, instance) if instance is not None else []
        self._refuse(drill, target)
        if instance is None or self._instance(target) is not instance:
            raise NotNow(f"{target} is being replaced just now; a drill needs it ready")
        return found

    def _inject(self, drill: str, target: str, procs: list[table.Proc]) -> None:
        if not signal_all(procs, _SIGNALS[drill]):
            raise NotNow(f"no process of {target} is left to {drill}")
        self._world.update(target, drilled=True)

    def _take_store_away(self, drill: str, name: str, cause: Cause) -> None:
        self._world.drill = cause
        operator.carry_out(self._world, "stop", name, cause)
        work = self._bring_back(name, cause, empty=drill == "store-empty")
        self._work = asyncio.create_task(work, name="drill")

    async def _bring_back(self, name: str, cause: Cause, empty: bool) -> None:
        """Start etcd again after a while; with `empty` without its data, which are kept beside. What an operator has
        said of it meanwhile stands."""
        deadline = time.monotonic() + _STOPPED_S
        while self._away(name) and not self._at_rest(name) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if self._away(name) and self._at_rest(name):
            # else its data are in use: leave them
            if empty:
                self._set_aside(name)
            else:
                await asyncio.sleep(STORE_DOWN_S)
        if self._away(name):
            operator.carry_out(self._world, "start", name, cause)
            self._wake()

    def _away(self, name: str) -> bool:
        """Whether it is this drill, and nobody else, that keeps it stopped."""
        return operator.lent(self._world, self._world.components[name])

    def _at_rest(self, name: str) -> bool:
        return self._world.components[name].state is State.STOPPED

    def _set_aside(self, name: str) -> None:
        data = self._world.components[name].spec.data_dir
        if data is None or not data.exists():
            return
        beside = data.with_name(f"{data.name}.drill-{int(time.time())}")
        try:
            os.rename(data, beside)
            text = f"drill store-empty: the data are kept in {beside}"
        except OSError as e:
            text = f"drill store-empty: {data} could not be set aside: {e.strerror}; {name} keeps its data"
        self._events.emit(name, "record", Cause(Reason.RESIDUE, text))


def refuse(drill: str, view: ComponentView) -> None:
    """UsageError where this drill does not fit this component, NotNow where the component does not run."""
    if drill.startswith("store-") and view.plane is not Plane.STORE:
        raise UsageError(f"drill {drill} is for etcd, not for {view.name}")
    if drill in ("hang", "spin") and view.plane is not Plane.ENGINE:
        raise UsageError(f"drill {drill} is for a rank, not for {view.name}")
    if view.state is not State.READY:
        raise NotNow(f"{view.name} is {view.state.value}; a drill needs it ready")


_SIGNALS = {
    "kill": signal.SIGKILL,
    "freeze": signal.SIGSTOP,
    "hang": signal.SIGSTOP,
    # the stand-in's engine core takes it as the word to spin; a real one would die of it
    "spin": signal.SIGUSR2,
}


async def victims(drill: str, instance: Instance) -> list[table.Proc]:
    """The processes of the instance that the drill hits. UsageError where there is none, or where it does not fit."""
    members = await asyncio.to_thread(instance.members)
    if drill == "kill":
        chosen = [m for m in members if m.pid == instance.pid]
    elif drill == "freeze":
        chosen = members
    else:
        chosen = [m for m in members if m.comm.startswith(ENGINE)]
    if drill == "spin" and not all(_stand_in(m) for m in chosen):
        raise UsageError("drill spin is for the stand-in engine")
    if not chosen:
        raise UsageError(f"no process of {instance.spec.name} to {drill}")
    return chosen


def _stand_in(proc: table.Proc) -> bool:
    return any(b"yrnode.demo.engine" in _cmdline(pid) for pid in (proc.pid, proc.ppid))


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def reach(world: World, drill: str, target: str, now: float, done: bool) -> dict[str, Any]:
    """The blast radius, as `api.node.Node.drill` has it. `now`: monotonic seconds."""
    found = _radius(world, drill, target)
    told = radius.told(world, "drill", target, found, now, done)
    if drill == DAEMON:
        told["nodes"] = [world.me]
    return {**told, "drill": drill, "seen_at": _seen_at(world, drill, target)}


def _radius(world: World, drill: str, target: str) -> Radius:
    """What will restart: as with an operator's restart, and after a loss of the store's data also its users."""
    if drill == DAEMON:
        return Radius((), (), ())
    found = operator.radius(world, "restart", target)
    if drill != "store-empty" or not _alone(world, target):
        return found
    if datasystem.GROUP not in world.groups:
        there = (datasystem.GROUP,) if datasystem.GROUP in world.places else ()
        return Radius((), (target,), (target,), there)
    cache = operator.radius(world, "restart", datasystem.GROUP)
    along = any(world.components[m].spec.takes_groups for m in world.groups[datasystem.GROUP].members)
    # each node's worker takes along what is above it there
    away = [g for g, place in world.places.items() if along and place.ranks and g not in world.groups]
    coupled = tuple(dict.fromkeys((*cache.coupled, *away)))
    running = [c for c in cache.components if operator.wanted(world, world.components[c])]
    return Radius(cache.groups, (target,), (*running, target), coupled)


def _seen_at(world: World, drill: str, target: str) -> list[str]:
    """Targets of events by which the fault is seen: what a drill itself does to etcd is no sight of it."""
    if drill.startswith("store-") and _alone(world, target):
        empty = drill == "store-empty" and datasystem.GROUP in world.groups
        return [datasystem.GROUP if empty else "store"]
    group = world.components[target].spec.group if target in world.components else None
    return [target, group] if group else [target]


def _alone(world: World, name: str) -> bool:
    """Whether the store is this one etcd: with other members it neither goes away nor loses its data."""
    return world.components[name].spec.replicas == 1
