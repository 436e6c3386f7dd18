"""The kernel's process table, read from /proc.

psutil would do, but a scan of all processes for one session or mark is on the stop path, and this is much cheaper.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from yrnode.model.cover import short
from yrnode.model.secrets import cover_argv

MARK = b"YRNODE_INSTANCE"
HOME = b"YRNODE_HOME"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MOST_LISTS = 10
"""Of one look: a host may start processes all the time."""
_EXEC_PAUSES_S = (0.0, 0.001, 0.002, 0.005)


@dataclass(frozen=True)
class Proc:
    """One process. `start_ticks` (clock ticks since boot) and the boot id make a pid unique.

    `cpu_ticks`: CPU time that it has used, all threads, user and system.
    """

    pid: int
    comm: str
    state: str
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    cpu_ticks: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.comm}, state {self.state})"


def read(pid: int) -> Proc | None:
    """The process, or None where there is none."""
    try:
        text = content(f"/proc/{pid}/stat").decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # comm may hold blanks and brackets: it ends at the last one
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return Proc(
        pid,
        head.partition("(")[2],
        fields[0],
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[19]),
        int(fields[11]) + int(fields[12]),
    )


def scan() -> Iterator[Proc]:
    """Every process. Who came during the look is looked at too: a child of one that was read is not missed when its
    parent has ended by then."""
    seen: set[str] = set()
    for _ in range(_MOST_LISTS):
        new = [entry for entry in os.listdir("/proc") if entry.isdigit() and entry not in seen]
        if not new:
            return
        seen.update(new)
        for entry in new:
            proc = read(int(entry))
            if proc is not None:
                yield proc


class Look:
    """All processes at one moment, for many questions: a process's marks are read once at most."""

    def __init__(self) -> None:
        self.procs = list(scan())
        self._marks: dict[int, tuple[str, str]] = {}

    def marks(self, pid: int) -> tuple[str, str]:
        if pid not in self._marks:
            self._marks[pid] = marks(pid)
        return self._marks[pid]


def marks(pid: int) -> tuple[str, str]:
    """(instance, home) from the process's own environment, empty where it has none or hides it."""
    found = dict(x.split(b"=", 1) for x in _environ(pid) if x.startswith((MARK + b"=", HOME + b"=")))
    return os.fsdecode(found.get(MARK, b"")), os.fsdecode(found.get(HOME, b""))


def number(pid: int, name: str) -> int:
    """A whole number that was written into the process's environment, 0 where it shows none."""
    digits = next((x.partition(b"=")[2] for x in _environ(pid) if x.startswith(f"{name}=".encode())), b"0")
    return int(digits) if digits.isdigit() else 0


def _environ(pid: int) -> list[bytes]:
    """Its fields; none where there is no such process, or it may not be read.

    While the kernel puts a new program in place (execve) a process shows none: an empty one is read again for a few
    milliseconds, or a member that starts something would pass for a stranger.
    """
    try:
        text = _read_environ(pid)
        for pause in _EXEC_PAUSES_S:
            # a kernel's thread has no program: OSError
            if text or not os.readlink(f"/proc/{pid}/exe"):
                break
            time.sleep(pause)
            text = _read_environ(pid)
    except OSError:
        return []
    return text.split(b"\0")


def _read_environ(pid: int) -> bytes:
    return content(f"/proc/{pid}/environ")


def content(path: str) -> bytes:
    """Of a small file that the kernel makes up: `open` costs half as much again. OSError as there."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def alive(proc: Proc) -> bool:
    """Whether this very process still runs: not a later one with its pid, and not a zombie."""
    now = read(proc.pid)
    return now is not None and now.start_ticks == proc.start_ticks and now.state not in "ZX"


def command(pid: int) -> str:
    """The command line for people, secrets covered, shortened to 200 characters."""
    try:
        words = argv(pid)
    except OSError:
        return ""
    # one line, whatever program somebody passes as a word
    return short(" ".join(" ".join(words).split()), 200)


def argv(pid: int) -> list[str]:
    """The command line, secrets covered; none of a zombie. OSError where it has gone."""
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return words_of(f.read())


def words_of(cmdline: bytes) -> list[str]:
    """The words of a /proc cmdline, secrets covered. A process that has written a title over it has one word, with
    blanks: what follows a secret's name there is a word too."""
    text = cmdline.decode("utf-8", "replace")
    words = text.rstrip("\0").split("\0")
    if len(words) == 1 or not text.endswith("\0"):
        words = " ".join(words).split()
    return cover_argv(words)


def monotonic_of(ticks: int) -> float:
    """A moment in clock ticks since boot, as monotonic seconds: those do not count a suspended host's sleep."""
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / TICKS_PER_S)


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()
