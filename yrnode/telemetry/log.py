"""The daemon's log: one line a record on stderr, which may be a terminal, a pipe, a file or the journal."""

from __future__ import annotations

import logging
import os
import re
import select
import traceback
from collections.abc import Callable
from datetime import datetime, timezone

from yrnode.model.cover import Cover
from yrnode.telemetry.journal import SOCKET, Journal

FIELDS = "journal_fields"
"""Name of a record's attribute that holds more fields for the journal."""

LONGEST_LINE = 4000
"""Bytes of one record; a pipe that polls as writable takes this many (PIPE_BUF) without blocking."""

_PATIENCE_MS = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


def set_up(
    level: int = logging.INFO, fd: int = 2, journal_socket: str = SOCKET, cover: Callable[[str], str] | None = None
) -> None:
    """Send all records of this process to `fd`: with time and level. Where the journal reads it, to the journal.
    `cover` is laid over each of them."""
    journal = is_journal(fd)
    handler = _Handler(fd, Journal(journal_socket) if journal else None)
    handler.setFormatter(_Formatter(journal, cover or Cover()))
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
    def __init__(self, journal: bool, cover: Callable[[str], str]) -> None:
        super().__init__()
        self._journal = journal
        self._cover = cover

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)[-8:]
            where = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in reversed(frames))
            text = f"{text}: {type(error).__name__}: {error} ({where})"
        text = one_line(self._cover(text))
        if self._journal:
            return text
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        return f"{at} {record.levelname} {text}"


def _priority(record: logging.LogRecord) -> int:
    return next((p for level, p in _PRIORITIES if record.levelno >= level), 7)


def _fields(record: logging.LogRecord, line: str) -> dict[str, str]:
    fields = {"MESSAGE": line, "PRIORITY": str(_priority(record)), "SYSLOG_IDENTIFIER": "yrnode"}
    return {**fields, **getattr(record, FIELDS, {})}


class _Handler(logging.Handler):
    """Never raises and never waits long: a reader that stopped reading must not stop the daemon.

    With a journal, `fd` only gets what that does not take, as lines that begin with their priority.
    """

    def __init__(self, fd: int, journal: Journal | None) -> None:
        super().__init__()
        self._fd = fd
        self._journal = journal
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as e:
            line = f"a record of {record.name} cannot be shown: {type(e).__name__}"
        if self._lost:
            line += f" [{self._lost} lines before this one could not be written]"
        if self._journal is not None:
            if self._journal.send(_fields(record, line)):
                self._lost = 0
                return
            line = f"<{_priority(record)}>{line}"
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
