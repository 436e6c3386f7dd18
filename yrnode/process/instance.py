"""One run of one component: its processes, from start until nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from yrnode.model.spec import ComponentSpec
from yrnode.process import proof, table
from yrnode.process.exit import Exit
from yrnode.process.record import Ident, Record
from yrnode.process.watch import Watch

_SHM = "/dev/shm/"  # noqa: S108  the kernel's place for POSIX shared memory
SHM_NAMES = tuple(_SHM + name for name in ("psm_", "sem.mp-", "vllm_offload_"))
"""How the names of what engines make in /dev/shm begin."""
LONGEST = 100
"""Sessions that a record holds."""
_LAUNCH_LOOK_S = 1.0
_LAST_WORDS_S = 3.0
"""What a launcher gets to say why the process that it had started has ended."""
_LOOK_S = 0.02
_LOOK_LONGEST_S = 0.25
_NEW_S = 120.0
_MAPS_S = 30.0
"""How often it is noted which memory an instance maps that has been ready for longer than `_NEW_S`."""


@dataclass
class Instance:
    """`main` is the process whose end is the component's end; a launcher's is found after the launch.

    `ended` is called on the loop when the main process ends, and for a launcher also when the launch fails.
    `path` is where its record is kept. `died_hard`: a process of it was killed, so that it could not tidy up.
    """

    spec: ComponentSpec
    record: Record
    path: Path
    ended: Callable[[Exit], None]
    launched: Watch | None = None
    main: Watch | None = None
    shm: set[str] = field(default_factory=set)
    died_hard: bool = False
    _main_ended: Exit | None = None
    _mapped_at: float = -math.inf
    _closed: bool = False
    _looking: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.shm |= set(self.record.shm)

    @property
    def id(self) -> str:
        return self.record.instance

    @property
    def pid(self) -> int | None:
        return self.main.proc.pid if self.main else None

    @property
    def watched(self) -> set[int]:
        """Pids whose exit status belongs to this instance."""
        return {w.proc.pid for w in self._watches() if w.exit is None}

    def _watches(self) -> list[Watch]:
        return [w for w in (self.launched, self.main) if w is not None]

    def watch_launched(self, proc: table.Proc) -> None:
        """Watch the process that was started: the main one, or the launcher of it."""
        self.launched = Watch(proc, self._launcher_ended if self.spec.launcher else self.ended)
        if self.spec.launcher:
            self._looking = asyncio.create_task(self._look_for_main(), name=f"{self.spec.name} launch")
        else:
            self.main = self.launched

    def watch_main(self, proc: table.Proc) -> None:
        self.main = Watch(proc, self._main_seen_to_end)

    def _launcher_ended(self, how: Exit) -> None:
        # the exit code of an adopted launcher is not to be had: what it brought up tells
        if how not in (Exit(code=0), Exit()) or (self.main is None and not self.find_main()):
            self.ended(how)
        elif self._main_ended is not None:
            self.ended(self._main_ended)

    def _main_seen_to_end(self, how: Exit) -> None:
        if not self._launching:
            self.ended(how)
            return
        # its launcher is about to say why; one that is frozen never will
        self._main_ended = how
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._no_last_words)

    def _no_last_words(self) -> None:
        if self._launching and self._main_ended is not None:
            self.ended(self._main_ended)

    @property
    def _launching(self) -> bool:
        return self.spec.launcher and self.launched is not None and self.launched.exit is None

    async def _look_for_main(self) -> None:
        """While the launcher runs: it may be held up long after what it has started is in order."""
        while self._launching and self.main is None:
            await asyncio.sleep(_LAUNCH_LOOK_S)
            found = await asyncio.to_thread(self._main_of)
            if found is not None and self.main is None and self._launching:
                self._take_main(found)

    def members(self) -> list[table.Proc]:
        """All living processes of this instance: its sessions, and what carries its mark and is proven its own.

        Not zombies.
        """
        return members_of(self.record, self.spec.dir, self.spec.log)

    def find_main(self) -> bool:
        """Look for the process that a launcher started: it leads a session of its own and carries our mark."""
        found = self._main_of()
        if found is not None:
            self._take_main(found)
        return found is not None

    def _main_of(self) -> table.Proc | None:
        launcher = self.record.launched.pid if self.record.launched else None
        return next((p for p in self.members() if p.sid == p.pid and p.pid != launcher), None)

    def _take_main(self, proc: table.Proc) -> None:
        self.watch_main(proc)
        # a lost write costs nothing here: the mark finds the process too
        with contextlib.suppress(OSError):
            self.keep(replace(self.record, main=Ident.of(proc)))

    def keep(self, record: Record) -> None:
        """Take a new record, and write it. OSError when it cannot be written; it is taken all the same."""
        self.record = replace(record, shm=tuple(sorted(self.shm)))
        self.record.save(self.path)

    async def stop(self, grace_s: float, kill_s: float = 5.0) -> list[table.Proc]:
        """End it: TERM, after `grace_s` KILL, until no member is left or `kill_s` is over. Returns who is left."""
        members = await self.note()
        self.died_hard = not any(w.exit is None for w in self._watches())
        if not members:
            return []
        leaders = {m.pid for m in members if m.pid == m.sid}
        # a leader ends its own children; where it is gone they get their chance to release devices
        asked = [m for m in members if m.pid in leaders or m.sid not in leaders]
        signal_all(asked, signal.SIGTERM)
        # one that is stopped cannot obey: waiting for it helps nobody
        grace_until = time.monotonic() + (0.0 if _frozen(asked) else grace_s)
        left = await self._until_empty(grace_until if self.record.ready_at else _sooner(grace_until), _frozen)
        while left and not _frozen(left) and time.monotonic() < grace_until:
            # an engine that still loads loses a TERM; one that drains must not get a second
            signal_all([m for m in left if m.pid in leaders], signal.SIGTERM)
            left = await self._until_empty(_sooner(grace_until), _frozen)
        if not left:
            return []
        deadline = time.monotonic() + kill_s
        self.died_hard = True
        while left and time.monotonic() < deadline:
            # again and again: a member may fork while we look
            signal_all(left, signal.SIGKILL)
            left = await self._until_empty(min(deadline, time.monotonic() + 0.5))
        return left

    async def note(self, look: table.Look | None = None) -> list[table.Proc]:
        """Keep what a later daemon needs to know its leftovers by: its shared memory and its own sessions.

        Returns its members. With a `look` of the moment at all processes, memory is looked at less often once the
        instance has been ready for a while.
        """
        now, ready = time.monotonic(), self.record.ready_at
        maps = look is None or ready is None or now - ready < _NEW_S or now - self._mapped_at >= _MAPS_S
        members, shm = await asyncio.to_thread(self._look, look, maps)
        if maps:
            self._mapped_at = now
        self.shm |= shm
        if self._closed:
            # its record is gone, or is its successor's
            return members
        known = {*self.record.sessions, self.record.launched, self.record.main}
        new = tuple(i for p in members if p.pid == p.sid and (i := Ident.of(p)) not in known)
        if new or self.shm != set(self.record.shm):
            # a lost write costs a later daemon some proof, this one nothing
            with contextlib.suppress(OSError):
                self.keep(replace(self.record, sessions=(*self.record.sessions, *new)[-LONGEST:]))
        return members

    def _look(self, look: table.Look | None, maps: bool) -> tuple[list[table.Proc], set[str]]:
        """Its members, and which /dev/shm files they map.

        What was there before the start is somebody else's, and what is not named as engines name theirs may be too:
        weights may well be kept in /dev/shm.
        """
        shm: set[str] = set()
        members = members_of(self.record, self.spec.dir, self.spec.log, look)
        for proc in members if maps else ():
            with contextlib.suppress(OSError):
                shm |= {n for n in mapped_shm(proc.pid) if n.startswith(SHM_NAMES)}
        return members, shm - set(self.record.shm_before)

    async def _until_empty(
        self, deadline: float, hopeless: Callable[[list[table.Proc]], bool] = lambda _: False
    ) -> list[table.Proc]:
        """Who is left: at the deadline, or as soon as it is hopeless to wait for them."""
        pause = _LOOK_S
        # a look at all processes of a large host takes long enough to keep other probes waiting: in a thread
        while (left := await asyncio.to_thread(self.members)) and time.monotonic() < deadline and not hopeless(left):
            await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 1.5, _LOOK_LONGEST_S)
        return left

    def forget(self) -> None:
        """Nothing of it is left: remove its record. OSError when that fails."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop watching; the processes are left as they are, but what has ended is reaped."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        for watch in self._watches():
            watch.reap()
            watch.close()


def members_of(record: Record, directory: Path, log: Path | None, look: table.Look | None = None) -> list[table.Proc]:
    """The living processes of a recorded instance. `directory` and `log` are the component's."""
    if record.boot != table.boot_id():
        return []
    look = look or table.Look()
    idents = (record.launched, record.main, *record.sessions)
    roots = {i.pid for i in idents if i is not None and not _reused(i)}
    mine = (record.mark, record.home)
    found: list[table.Proc] = []
    marked: list[table.Proc] = []
    for proc in look.procs:
        if proc.start_ticks >= record.began and proc.state not in "ZX":
            if proc.sid in roots:
                found.append(proc)
            elif look.marks(proc.pid) == mine:
                marked.append(proc)
    if marked:
        found += proof.sort(marked, found, directory, log).own
    return found


def _frozen(procs: list[table.Proc]) -> bool:
    """Whether they are stopped, so that none can obey."""
    return all(p.state == "T" for p in procs)


def _sooner(deadline: float) -> float:
    """When to ask again: a second from now, at the latest at the deadline."""
    return min(deadline, time.monotonic() + 1.0)


def _reused(leader: Ident) -> bool:
    """Whether a later process has this pid. While one of the old session lives, the kernel does not reuse it."""
    now = table.read(leader.pid)
    return now is not None and now.start_ticks != leader.start_ticks


def signal_all(procs: list[table.Proc], number: int) -> int:
    """Signal each of these very processes, and how many there were; a pid that was reused meanwhile is left alone."""
    hit = 0
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
                hit += 1
        except ProcessLookupError:
            pass
        finally:
            if fd is not None:
                os.close(fd)
    return hit


def mapped_shm(pid: int) -> set[str]:
    """POSIX shared memory (files right in /dev/shm) that a process maps now, deleted ones left out.

    PermissionError where the process does not let us see.
    """
    found: set[str] = set()
    renamed: set[tuple[int, int]] = set()
    try:
        maps = table.content(f"/proc/{pid}/maps")
        for line in maps.split(b"\n") if _SHM.encode() in maps else ():
            fields, slash, name = line.partition(_SHM.encode())
            if not slash or b"/" in name:
                continue
            if not name.endswith(b" (deleted)"):
                found.add(_SHM + os.fsdecode(name))
            elif name.startswith(b"sem."):
                # whoever makes a semaphore maps it under a passing name, before it is linked to its own
                device, inode = fields.split()[3:5]
                major, minor = device.split(b":")
                renamed.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found | _named(renamed) if renamed else found


def _named(files: set[tuple[int, int]]) -> set[str]:
    """The present names in /dev/shm of files that are known by device and inode."""
    try:
        device = os.stat(_SHM).st_dev
        with os.scandir(_SHM) as entries:
            return {e.path for e in entries if (device, e.inode()) in files}
    except OSError:
        return set()


def all_shm() -> tuple[str, ...]:
    """What is right in /dev/shm now."""
    try:
        return tuple(_SHM + name for name in sorted(os.listdir(_SHM)))
    except OSError:
        return ()
