"""Real child processes for the tests of this room, all ended by pid at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Plane
from yrnode.process import table
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance
from yrnode.process.launch import Owner, launch

NAME = "test/n0"
PATH = {"PATH": os.defpath}


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """The condition's first true value; an assertion when it stays false."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.01)
    return found


def read_pid(path: Path) -> int:
    """The pid that a child wrote, 0 before it has."""
    with contextlib.suppress(OSError, ValueError):
        text = path.read_text()
        return int(text) if text.endswith("\n") else 0
    return 0


def state_of(pid: int) -> str:
    """The kernel's letter, empty where there is no such process."""
    proc = table.read(pid)
    return proc.state if proc else ""


def gone(pid: int) -> bool:
    return state_of(pid) in ("", "Z", "X")


class Lab:
    """Starts components in `home` and remembers what ended."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.owner = Owner(NAME, home, home / "run")
        self.instances: list[Instance] = []
        self.strangers: list[int] = []
        self.exits: list[Exit] = []

    def spec(self, script: str, name: str = "worker", **facts: Any) -> ComponentSpec:
        """A component that runs a shell script; facts replace the spec's own."""
        argv = facts.pop("argv", ("/bin/sh", "-c", script))
        env = {**PATH, "PYTHON": sys.executable, **facts.pop("env", {})}
        directory, log = facts.pop("dir", self.home / name), facts.pop("log", self.home / "log" / f"{name}.log")
        return ComponentSpec(name, "worker", Plane.CACHE, argv, env, directory, log, **facts)

    def start(self, script: str, name: str = "worker", generation: int = 1, **facts: Any) -> Instance:
        spec = self.spec(script, name, **facts)
        instance = launch(spec, generation, self.owner, self.exits.append, {})
        self.instances.append(instance)
        return instance

    def note(self, pid: int) -> int:
        """A process that is to be ended after the test, whatever happens."""
        self.strangers.append(pid)
        return pid

    async def started(self, script: str, **facts: Any) -> Instance:
        """Started, and its script has said "up" (touch $PWD/up)."""
        instance = self.start(script, **facts)
        await until((instance.spec.dir / "up").exists)
        return instance

    async def close(self) -> None:
        for instance in self.instances:
            left = [m.pid for m in instance.members()]
            instance.close()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for pid in self.strangers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in [*self.strangers, *(i.launched.proc.pid for i in self.instances)]:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
