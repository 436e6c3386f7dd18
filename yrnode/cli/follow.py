"""The lines that come to a log, over its rotations: what was copied away meanwhile is read where it went."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from yrnode.process.rotate import rotations

_BLOCK = 64 * 1024
_KNOWN = 4096
"""So many bytes before the place that has been reached tell where that place is in a copy."""
_END = 1024
_LOOKS = 1000
"""Where the newest part stays away, what is read counts all the same."""


class Follower:
    """From the present end of the file at `path` on, which is `end` in bytes. OSError where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # before the end is looked at: a rotation in between would else not be seen
        self._part = _inode(_newest_part(path))
        self._file = FileIO(path)
        self.end = os.fstat(self._file.fileno()).st_size
        self._known = os.pread(self._file.fileno(), min(_KNOWN, self.end), max(0, self.end - _KNOWN))
        self._file.seek(self.end)
        # to be read after the present one; whether a line that has begun goes on there
        self._next: list[tuple[FileIO, bool]] = []
        self._rest = b""
        self._emptied = False

    def lines(self) -> list[bytes]:
        """Whole lines that have come, without their ends, some at a time. Empty: no more for now."""
        for looks in range(_LOOKS):
            data = os.pread(self._file.fileno(), _BLOCK, self._file.tell())
            # after the read: a copy that is not there yet means that this was read of the file before it is emptied
            if not self._next and self._look_for_rotation() and looks < _LOOKS - 1:
                continue
            if data:
                self._file.seek(len(data), os.SEEK_CUR)
                self._known = (self._known + data)[-_KNOWN:]
                *done, self._rest = (self._rest + data).split(b"\n")
                if done:
                    return done
            elif self._next:
                self._file.close()
                self._turn()
            else:
                break
        return []

    def go_on(self, files: Sequence[Path]) -> None:
        """`files` follow one another: those after the present one are read next; where it is not among them, the last
        is."""
        own = os.fstat(self._file.fileno())
        opened = [(p, f) for p in files if (f := _open(p)) is not None]
        same = [i for i, (_, f) in enumerate(opened) if os.path.samestat(os.fstat(f.fileno()), own)]
        first = same[-1] + 1 if same else max(0, len(opened) - 1)
        for _, f in opened[:first]:
            f.close()
        for path, f in opened[first:]:
            self._next.append((f, False))
            self._path, self._part = path, _inode(_newest_part(path))

    def _look_for_rotation(self) -> bool:
        """Whether what was just read counts for nothing: the file was emptied, and is read anew after what was copied
        of it, or it cannot be told while parts are renamed."""
        at, now, part = self._file.tell(), os.fstat(self._file.fileno()), _inode(_newest_part(self._path))
        if part is None and rotations(self._path):
            return True
        if part in (None, self._part, now.st_ino):
            # emptied without a copy; where the disk had no room, one comes a moment later
            before, self._emptied = self._emptied, now.st_size < at and not self._emptied
            if before:
                self._begin_anew([], goes_on=False)
            return before
        copies = self._copies()
        # the same one in front before and after: none was renamed
        first = os.fstat(copies[-1].fileno()).st_ino if copies else None
        whole = first == part == _inode(_newest_part(self._path))
        # the file was emptied after each of the older ones; after the newest that may be still to come
        if whole and not self._was_emptied(copies[-1], at if len(copies) == 1 else 0):
            copies.pop().close()
        if whole and copies:
            self._part, self._emptied = os.fstat(copies[-1].fileno()).st_ino, False
            self._find(copies[0], at)
            self._begin_anew(copies, goes_on=True)
            return True
        for f in copies:
            f.close()
        return not whole

    def _copies(self) -> list[FileIO]:
        """Parts that are newer than the one that is known, oldest first; each once, though renamed meanwhile."""
        found: dict[int, FileIO] = {}
        for path in reversed(rotations(self._path)):
            if (f := _open(path)) is not None and found.setdefault(os.fstat(f.fileno()).st_ino, f) is not f:
                f.close()
            if self._part in found:
                found.pop(self._part).close()
                break
        return [*found.values()][::-1]

    def _was_emptied(self, copy: FileIO, at: int) -> bool:
        """A copy is there before the file is emptied: until then the file is as it was, or longer."""
        size = os.fstat(self._file.fileno()).st_size
        if size < max(at, os.fstat(copy.fileno()).st_size):
            return True
        if at >= _KNOWN:
            return not self._is_known(self._file, at)
        head = os.pread(copy.fileno(), _KNOWN, 0)
        return os.pread(self._file.fileno(), len(head), 0) != head

    def _begin_anew(self, copies: Sequence[FileIO], goes_on: bool) -> None:
        """With the beginning of the file, after what was copied of it."""
        self._file.seek(0)
        self._next = [(f, goes_on) for f in (*copies, self._file)]
        self._turn()

    def _turn(self) -> None:
        (self._file, goes_on), *self._next = self._next
        self._known = b""
        if self._rest and not goes_on:
            # nobody will end this line
            self._rest += b"\n"

    def _is_known(self, f: FileIO, at: int) -> bool:
        """Whether a file has before a place what was there when it was read."""
        return os.pread(f.fileno(), len(self._known), at - len(self._known)) == self._known

    def _find(self, copy: FileIO, at: int) -> None:
        """Go to what is still to be read. A copy whose beginning was left out has it elsewhere, or begins after it;
        one to which nobody wrote the end that we have seen has nothing more."""
        if self._is_known(copy, at):
            copy.seek(at)
            return
        # a ValueError is an empty file
        with contextlib.suppress(ValueError), mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ) as m:
            found = m.rfind(self._known)
            if found >= 0:
                copy.seek(found + len(self._known))
            elif m[-_END:] in self._known:
                copy.seek(0, os.SEEK_END)


def _newest_part(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _open(path: Path) -> FileIO | None:
    try:
        return FileIO(path)
    except FileNotFoundError:
        return None
