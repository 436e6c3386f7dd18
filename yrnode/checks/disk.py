"""Whether the node's directories can be written, and who fills them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from yrnode.model.verdict import Result, fail, ok

LOW_BYTES = 32 * 1024**2
LOW_INODES = 64
START_BYTES = 1024**2
"""Room for what a start writes: its record, its files, the first lines of its log."""
_PROBE = ".yrnode-probe"
_MB = 1024**2
_DEEP = 5_000


def probe(name: str, path: Path, writer: str) -> Result:
    """A small file is written there, synced and removed. `writer`: who writes most, for people."""
    try:
        room = os.statvfs(path)
        if room.f_flag & os.ST_RDONLY:
            return fail(f"{name} {path} is on a read-only file system")
        why = _full(room)
        _write(path / _PROBE)
    except OSError as e:
        why = why_not(path, e)
    else:
        free = room.f_bavail * room.f_frsize
        if not why:
            return ok(f"{name} {path}: {free / _MB:.0f} MB free", free=float(free))
    return fail(f"{name} {path} {why}{'; ' if writer else ''}{writer}")


def why_unwritable(paths: Iterable[Path]) -> str:
    """Empty when there is room for a start in each of the directories, which are made where need be."""
    for path in paths:
        try:
            path.mkdir(parents=True, exist_ok=True)
            _reserve(path / _PROBE)
        except OSError as e:
            return f"{path} {why_not(path, e)}"
    return ""


def why_not(path: Path, e: OSError) -> str:
    """In words for people, why nothing can be written to the directory."""
    try:
        full = _full(os.statvfs(path))
    except OSError:
        full = ""
    return full or f"cannot be written: {e.strerror}"


def _full(room: os.statvfs_result) -> str:
    free = room.f_bavail * room.f_frsize
    if free < LOW_BYTES:
        return f"is full: {free / _MB:.1f} MB free"
    if room.f_files and room.f_favail < LOW_INODES:
        return f"is full: {room.f_favail} inodes free"
    return ""


def _write(path: Path) -> None:
    with _file(path) as fd:
        os.write(fd, b"x" * 4096)
        os.fsync(fd)


def _reserve(path: Path) -> None:
    """Room is promised by the file system, not written: before each start there is no time for a slow disk."""
    with _file(path) as fd:
        os.posix_fallocate(fd, 0, START_BYTES)


@contextlib.contextmanager
def _file(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
        # a start and the watch over the disks may look at the same moment
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def size_of(roots: Iterable[Path]) -> int:
    """Bytes that files and folders take, at most some thousands of files, links not followed."""
    total = left = 0
    left = _DEEP
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                total += _taken(os.path.join(folder, name))
            left -= len(names) + 1
            if left <= 0:
                return total
        total += _taken(str(root))
    return total


def _taken(path: str) -> int:
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    return min(info.st_size, info.st_blocks * 512) if stat.S_ISREG(info.st_mode) else 0


@dataclass
class Growth:
    """How fast each component's files grow, by the file system that they are on."""

    _before: dict[tuple[int, str], int] = field(default_factory=dict)
    _rates: dict[tuple[int, str], float] = field(default_factory=dict)
    _at: float | None = None

    def note(self, now: float, files: Mapping[str, Iterable[Path]]) -> None:
        """`files`: each component's files and folders. `now` in monotonic seconds."""
        sizes: dict[tuple[int, str], int] = {}
        for name, paths in files.items():
            for path in paths:
                device = device_of(path)
                if device is not None:
                    sizes[device, name] = sizes.get((device, name), 0) + size_of([path])
        passed = now - self._at if self._at is not None else 0.0
        if passed > 0:
            self._rates = {k: (v - self._before.get(k, v)) / passed for k, v in sizes.items()}
        self._before, self._at = sizes, now

    def writer(self, device: int | None) -> tuple[str, str]:
        """(component, words) of the one that fills a file system: the fastest, else the largest; empty for none."""
        rates = {name: rate for (d, name), rate in self._rates.items() if d == device and rate >= _MB / 10}
        if rates:
            name = max(rates, key=lambda n: rates[n])
            return name, f"{name} writes {rates[name] / _MB:.1f} MB/s"
        sizes = {name: size for (d, name), size in self._before.items() if d == device and size >= LOW_BYTES}
        if sizes:
            name = max(sizes, key=lambda n: sizes[n])
            return name, f"{name} holds {sizes[name] / _MB:.0f} MB"
        return "", ""


def device_of(path: Path) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None
