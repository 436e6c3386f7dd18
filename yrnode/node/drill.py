"""Faults on purpose: what `yrnode drill` does to a running component, from within, by proof and not by name.

A fault that a drill injected does not count against any budget.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from yrnode.model.cause import Cause
from yrnode.model.errors import UsageError
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import Plane, State
from yrnode.node import operator
from yrnode.node.world import World
from yrnode.process import table
from yrnode.process.instance import Instance, signal_all

STORE_DOWN_S = 8.0
_STOPPED_S = 60.0
ENGINE = "VLLM::EngineC"
"""The kernel keeps 15 characters of a name."""


def refuse(drill: str, view: ComponentView) -> None:
    """UsageError where this drill does not fit this component, or the component does not run."""
    if drill.startswith("store-") and view.plane is not Plane.STORE:
        raise UsageError(f"drill {drill} is for etcd, not for {view.name}")
    if drill in ("hang", "spin") and view.plane is not Plane.ENGINE:
        raise UsageError(f"drill {drill} is for a rank, not for {view.name}")
    if view.state is not State.READY:
        raise UsageError(f"{view.name} is {view.state.value}; a drill needs it ready")


async def inject(drill: str, instance: Instance) -> None:
    """Kill or stop processes of the instance. UsageError where there is nothing to do it to."""
    members = await asyncio.to_thread(instance.members)
    if drill == "kill":
        chosen, number = [m for m in members if m.pid == instance.pid], signal.SIGKILL
    elif drill == "freeze":
        chosen, number = members, signal.SIGSTOP
    else:
        chosen = [m for m in members if m.comm.startswith(ENGINE)]
        # the stand-in's engine core takes USR2 as the word to spin; a real one would die of it
        number = signal.SIGSTOP if drill == "hang" else signal.SIGUSR2
        if drill == "spin" and not all(_stand_in(m) for m in chosen):
            raise UsageError("drill spin is for the stand-in engine")
    if not chosen:
        raise UsageError(f"no process of {instance.spec.name} to {drill}")
    signal_all(chosen, number)


def _stand_in(proc: table.Proc) -> bool:
    return any(b"yrnode.demo.engine" in _cmdline(pid) for pid in (proc.pid, proc.ppid))


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def take_store_away(world: World, view: ComponentView, cause: Cause, empty: bool) -> None:
    """Stop etcd for a while; with `empty` it comes back without its data, which is kept beside."""
    operator.carry_out(world, "stop", view.name, cause)
    deadline = time.monotonic() + _STOPPED_S
    while world.components[view.name].state is not State.STOPPED and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    data = view.spec.data_dir
    if world.components[view.name].state is not State.STOPPED:
        # its data is in use: leave it
        pass
    elif empty and data is not None and data.exists():
        os.rename(data, data.with_name(f"{data.name}.drill-{int(time.time())}"))
    else:
        await asyncio.sleep(STORE_DOWN_S)
    operator.carry_out(world, "start", view.name, cause)
