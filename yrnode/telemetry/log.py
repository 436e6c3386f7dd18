"""The daemon's log: one line a record on stderr, which may be a terminal, a pipe, a file or the journal."""

from __future__ import annotations

import logging
import os
import re
import select
import traceback
from datetime import datetime, timezone

LONGEST_LINE = 4000
"""Bytes of one record; a pipe that polls as writable takes this many (PIPE_BUF) without blocking."""

_PATIENCE_MS = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


def set_up(level: int = logging.INFO, fd: int = 2) -> None:
    """Send all records of this process to `fd`: with time and level, or as the journal wants them if it listens."""
    handler = _Handler(fd)
    handler.setFormatter(_Formatter(journal=is_journal(fd)))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # a fault of the log itself is no reason to write more
    logging.raiseExceptions = False
    logging.captureWarnings(True)


def is_journal(fd: int) -> bool:
    """Whether systemd's journal reads `fd`: `$JOURNAL_STREAM` names its device and inode."""
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def one_line(text: str) -> str:
    """Text without line breaks and control characters, which would forge lines or move a terminal's cursor."""
    return _CONTROL.sub(lambda m: repr(m[0])[1:-1], text)


class _Formatter(logging.Formatter):
    def __init__(self, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)[-8:]
            where = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in reversed(frames))
            text = f"{text}: {type(error).__name__}: {error} ({where})"
        text = one_line(text)
        if self._journal:
            priority = next((p for level, p in _PRIORITIES if record.levelno >= level), 7)
            return f"<{priority}>{text}"
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        return f"{at} {record.levelname} {text}"


class _Handler(logging.Handler):
    """Never raises and never waits long: a reader that stopped reading must not stop the daemon."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as e:
            line = f"a record of {record.name} cannot be shown: {type(e).__name__}"
        if self._lost:
            line += f" [{self._lost} lines before this one could not be written]"
        data = line.encode("utf-8", "backslashreplace")
        if len(data) > LONGEST_LINE:
            # not in the middle of a character
            data = (data[: LONGEST_LINE - 3].decode("utf-8", "ignore") + "…").encode()
        if self._write(data + b"\n"):
            self._lost = 0
        else:
            self._lost += 1

    def _write(self, data: bytes) -> bool:
        try:
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if not poll.poll(0 if self._lost else _PATIENCE_MS):
                return False
            os.write(self._fd, data)
        except OSError:
            return False
        return True
