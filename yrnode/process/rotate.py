"""Bound a component's output, which it appends to a file that stays open: copy, then truncate. No pipe, so nothing of
ours must run for the output to flow.

`<name>.log.1` is the newest of the older parts. What is written between the last read of the copy and the truncation,
some microseconds later, is lost.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 64 * 1024**2
KEEP = 3
TAIL_BYTES = 1024**2
"""What is kept of a file for whose copy the disk has no room."""
_BLOCK = 1024**2
_LINE = 64 * 1024
"""A line break is looked for within so much; a longer line is cut."""


@dataclass(frozen=True)
class Rotated:
    """`lost`: bytes that are in no file any more, and were in no older part that `keep` would have dropped anyway."""

    path: Path
    bytes: int
    lost: int = 0


def rotations(path: Path) -> list[Path]:
    """The older parts of a file that exist, oldest first."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            base, _, number = name.rpartition(".")
            if base == path.name and number.isdecimal() and int(number) > 0:
                found.append((int(number), path.with_name(name)))
    return [p for _, p in sorted(found, reverse=True)]


def rotate(path: Path, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> Rotated | None:
    """Move what the file holds into an older part when that is `max_bytes` or more; None when there is nothing to do.

    Room is made before the copy, by dropping the oldest parts; where that is not enough only the end is kept. Of a
    file that has grown far beyond its bound the older half is dropped: the work of one call stays bounded.
    OSError when the folder cannot be changed; the file is then as it was.
    """
    try:
        # not blocking: somebody may have put a named pipe there
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or used(info) < max_bytes:
            return None
        return _move(fd, info, path, max_bytes, keep)
    finally:
        os.close(fd)


def used(info: os.stat_result) -> int:
    """Bytes that a file really takes: one whose writer does not append has a hole in front after a truncation."""
    return min(info.st_size, info.st_blocks * 512)


def unlinked(pid: int, max_bytes: int = MAX_BYTES) -> int | None:
    """Bytes of a removed file that a process's output still goes to; None where its file is there.

    Nobody can read it any more, but it takes room: it is emptied at `max_bytes`.
    """
    try:
        fd = os.open(f"/proc/{pid}/fd/1", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink:
            return None
        if used(info) >= max_bytes:
            os.ftruncate(fd, 0)
        return used(info)
    finally:
        os.close(fd)


def _move(fd: int, info: os.stat_result, path: Path, max_bytes: int, keep: int) -> Rotated:
    older = rotations(path)
    while len(older) >= keep:
        older.pop(0).unlink(missing_ok=True)
    start = _start(fd, max(0, info.st_size - 2 * max_bytes))
    while (copy := _copy_beside(fd, start, info, path)) is None:
        if not older:
            return _keep_end(fd, path, info)
        older.pop(0).unlink(missing_ok=True)
    out, copied = copy
    try:
        for part in older:
            os.rename(part, path.with_name(f"{path.name}.{int(part.suffix[1:]) + 1}"))
        os.rename(_beside(path), path.with_name(f"{path.name}.1"))
        # what came meanwhile
        _copy(fd, start + copied, out, max_bytes)
        os.ftruncate(fd, 0)
    finally:
        os.close(out)
    return Rotated(path, used(info), max(0, used(info) - copied))


def _beside(path: Path) -> Path:
    """Hidden until it is whole: readers take all that begins with the file's name for its parts."""
    return path.with_name(f".{path.name}.new")


def _copy_beside(fd: int, start: int, info: os.stat_result, path: Path) -> tuple[int, int] | None:
    """(open copy, bytes in it); None, and nothing is left, where it has no room."""
    out, beside = -1, _beside(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    copied = None
    room = os.statvfs(path.parent)
    if room.f_bavail * room.f_frsize >= info.st_size - start:
        with contextlib.suppress(OSError):
            out = os.open(beside, flags, stat.S_IMODE(info.st_mode))
            copied = _copy(fd, start, out, info.st_size - start)
    if copied is not None:
        return out, copied
    if out >= 0:
        os.close(out)
    with contextlib.suppress(OSError):
        beside.unlink()
    return None


def _start(fd: int, least: int) -> int:
    """From where to copy: the first data, and where older data is left out the first whole line."""
    try:
        start = os.lseek(fd, least, os.SEEK_DATA)
    except OSError:
        return least
    if least and start == least:
        start += os.pread(fd, _LINE, start).find(b"\n") + 1
    return start


def _copy(fd: int, at: int, out: int, most: int) -> int | None:
    """Copy to the file's end, `most` bytes at the most. How many; None when they have no room."""
    done = 0
    try:
        while done < most and (block := os.pread(fd, min(_BLOCK, most - done), at + done)):
            view = memoryview(block)
            while view:
                view = view[os.write(out, view) :]
            done += len(block)
    except OSError:
        return None
    return done


def _keep_end(fd: int, path: Path, info: os.stat_result) -> Rotated:
    """Without room for a copy: the end is kept in memory while the file is emptied, which makes room for it."""
    end = os.pread(fd, TAIL_BYTES, max(0, info.st_size - TAIL_BYTES))
    os.ftruncate(fd, 0)
    lost = max(0, used(info) - len(end))
    with contextlib.suppress(OSError):
        path.with_name(f"{path.name}.1").write_bytes(b"--- yrnode: %d bytes dropped: no room\n" % lost + end)
    return Rotated(path, used(info), lost)
