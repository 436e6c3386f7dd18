"""One run of one component: its processes, from start until nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from yrnode.model.spec import ComponentSpec
from yrnode.process import table, tail
from yrnode.process.exit import Exit
from yrnode.process.watch import Watch

_SHM = "/dev/shm/"  # noqa: S108  the kernel's place for POSIX shared memory
_LOOK_S = 0.02
_LOOK_LONGEST_S = 0.25


class LaunchError(Exception):
    """The program could not be started: one line that names it and why."""


def new_id() -> str:
    return secrets.token_hex(4)


@dataclass
class Instance:
    """`main` is the process whose end is the component's end; a launcher's is found after the launch."""

    spec: ComponentSpec
    id: str
    generation: int
    mark: str
    home: str
    ended: Callable[[Exit], None]
    launched: Watch
    launch_exit: Exit | None = None
    main: Watch | None = None
    shm_before: frozenset[str] = frozenset()
    shm: set[str] = field(default_factory=set)

    @property
    def pid(self) -> int | None:
        return self.main.proc.pid if self.main else None

    @property
    def watched(self) -> set[int]:
        """Pids whose exit status belongs to this instance."""
        return {w.proc.pid for w in (self.launched, self.main) if w is not None and w.exit is None}

    def members(self) -> list[table.Proc]:
        """All living processes of this instance: its sessions, and whatever carries its mark. Not zombies."""
        roots = {w.proc.pid for w in (self.launched, self.main) if w is not None and not _reused(w.proc)}
        oldest = self.launched.proc.start_ticks
        return [
            proc
            for proc in table.scan()
            if proc.start_ticks >= oldest
            and proc.state not in "ZX"
            and (proc.sid in roots or table.marks(proc.pid) == (self.mark, self.home))
        ]

    def find_main(self) -> bool:
        """Look for the process that a launcher started: it leads a session of its own and carries our mark."""
        for proc in self.members():
            if proc.sid == proc.pid and proc.pid != self.launched.proc.pid:
                self.main = Watch(proc, self.ended)
                return True
        return False

    async def stop(self, grace_s: float, kill_s: float = 5.0) -> list[table.Proc]:
        """End it: TERM, after `grace_s` KILL, until no member is left or `kill_s` is over. Returns who is left."""
        self.note_shared_memory()
        members = self.members()
        leaders = {m.pid for m in members if m.pid == m.sid}
        # a leader ends its own children; where it is gone they get their chance to release devices
        signal_all([m for m in members if m.pid in leaders or m.sid not in leaders], signal.SIGTERM)
        left = await self._until_empty(time.monotonic() + grace_s)
        if not left:
            return []
        deadline = time.monotonic() + kill_s
        while left and time.monotonic() < deadline:
            # again and again: a member may fork while we look
            signal_all(left, signal.SIGKILL)
            left = await self._until_empty(min(deadline, time.monotonic() + 0.5))
        return left

    def note_shared_memory(self) -> None:
        """Remember which /dev/shm files the members map: only what was seen here is removed after a KILL.

        What was there before the start is somebody else's: weights may well be kept in /dev/shm.
        """
        for proc in self.members():
            self.shm |= mapped_shm(proc.pid) - self.shm_before

    async def _until_empty(self, deadline: float) -> list[table.Proc]:
        pause = _LOOK_S
        while (left := self.members()) and time.monotonic() < deadline:
            await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 1.5, _LOOK_LONGEST_S)
        return left

    def close(self) -> None:
        """Stop watching; the processes are left as they are, but what has ended is reaped."""
        for watch in (self.launched, self.main):
            if watch is not None:
                watch.reap()
                watch.close()


def _reused(leader: table.Proc) -> bool:
    """Whether a later process has this pid. While one of the old session lives, the kernel does not reuse it."""
    now = table.read(leader.pid)
    return now is not None and now.start_ticks != leader.start_ticks


def signal_all(procs: list[table.Proc], number: int) -> None:
    """Signal each of these very processes; a pid that was reused meanwhile is left alone."""
    for proc in procs:
        try:
            fd = os.pidfd_open(proc.pid)
        except ProcessLookupError:
            continue
        except OSError:
            fd = None
        try:
            if table.alive(proc):
                if fd is not None:
                    signal.pidfd_send_signal(fd, number)
                else:
                    os.kill(proc.pid, number)
        except ProcessLookupError:
            pass
        finally:
            if fd is not None:
                os.close(fd)


def mapped_shm(pid: int) -> set[str]:
    """POSIX shared memory (files right in /dev/shm) that a process maps now, deleted ones left out."""
    found = set()
    try:
        with open(f"/proc/{pid}/maps", "rb") as f:
            for line in f:
                _, slash, name = line.rstrip(b"\n").partition(_SHM.encode())
                if slash and b"/" not in name and not name.endswith(b" (deleted)"):
                    found.add(_SHM + os.fsdecode(name))
    except OSError:
        pass
    return found


def _all_shm() -> frozenset[str]:
    try:
        return frozenset(_SHM + name for name in os.listdir(_SHM))
    except OSError:
        return frozenset()


def launch(
    spec: ComponentSpec,
    generation: int,
    owner: str,
    home: Path,
    ended: Callable[[Exit], None],
    values: Mapping[str, str],
) -> Instance:
    """Start the component's program in its own session and directory. LaunchError when that cannot be done.

    `owner` is "<cluster>/<node>", `home` the state directory: both are part of the mark by which a later yrnode knows
    its own. `values` replaces whole arguments that are only known now (an rpc port). `ended` is called on the loop
    when the main process ends, and for a launcher also when the launch fails.
    """
    instance_id = new_id()
    mark = f"{owner}/{spec.name}/{instance_id}"
    env = {**spec.env, "YRNODE_INSTANCE": mark, "YRNODE_HOME": str(home), "YRNODE_GENERATION": str(generation)}
    argv = [values.get(a, a) for a in spec.argv]
    shm_before = _all_shm()
    try:
        for directory in (spec.dir, spec.log.parent, *spec.dirs):
            directory.mkdir(parents=True, exist_ok=True)
        for path, text in spec.files.items():
            path.write_text(text)
        with open(spec.log, "ab") as log:
            log.write(tail.header(spec.name, instance_id, generation))
            log.flush()
            child = subprocess.Popen(
                argv,
                cwd=spec.dir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError as e:
        raise LaunchError(f"cannot start {argv[0]}: {e.strerror} ({e.filename})") from e
    except ValueError as e:
        # a zero byte in a word or a variable
        raise LaunchError(f"cannot start {argv[0]}: {e}") from e
    # we reap through the watch; Popen must not
    child.returncode = 0
    proc = table.read(child.pid)
    if proc is None:
        raise LaunchError(f"{argv[0]} vanished at its start")
    instance: Instance

    def launcher_ended(how: Exit) -> None:
        instance.launch_exit = how
        if how.code != 0 or (instance.main is None and not instance.find_main()):
            ended(how)

    watch = Watch(proc, launcher_ended if spec.launcher else ended)
    instance = Instance(spec, instance_id, generation, mark, str(home), ended, watch, shm_before=shm_before)
    if not spec.launcher:
        instance.main = watch
    return instance
