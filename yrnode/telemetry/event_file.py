"""The events file: one JSON object a line, bounded in size, with one rotated predecessor."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections import deque
from dataclasses import fields
from pathlib import Path
from typing import Any

from yrnode.model.event import Event

log = logging.getLogger("yrnode.events")

NAME = "events.jsonl"
"""The events file's name in state_dir."""

_TYPES: dict[str, type | tuple[type, ...]] = {"seq": int, "at": (int, float), "generation": int}


def parse(line: bytes | str) -> Event:
    """One line of the file as an event. Unknown keys are ignored. ValueError for anything else than an event."""
    try:
        raw = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(raw, dict):
        raise ValueError("not an object")
    values: dict[str, Any] = {}
    for field in fields(Event):
        if field.name in raw:
            value = raw[field.name]
            if not isinstance(value, _TYPES.get(field.name, str)) or isinstance(value, bool):
                raise ValueError(f"{field.name} has another type")
            values[field.name] = value
    try:
        return Event(**values)
    except TypeError as e:
        raise ValueError(str(e)) from None


def predecessor(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def read_events(path: Path, n: int) -> list[Event]:
    """The last `n` events of the file and its predecessor, oldest first, without changing anything."""
    found: deque[Event] = deque(maxlen=n)
    for part in (predecessor(path), path):
        try:
            lines = part.read_bytes().split(b"\n")
        except OSError:
            continue
        for line in lines[-n - 1 :]:
            try:
                found.append(parse(line))
            except ValueError:
                continue
    return list(found)


class EventFile:
    """Appends events. Nothing here raises: what cannot be written waits, at most `keep` events of it."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._waiting: deque[bytes] = deque(maxlen=keep)
        self._lost = 0
        self._broken = False

    def load(self, n: int) -> list[Event]:
        """The last `n` events of earlier runs, oldest first.

        A last line that a crash cut off is removed. A file that holds anything else than events is set aside, and
        its events go on in a new one.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(self.path) and not self.path.is_file():
                # a folder, or a link to nowhere
                number = next(i for i in range(1, 1000) if not os.path.lexists(f"{self.path}.corrupt-{i}"))
                os.rename(self.path, f"{self.path}.corrupt-{number}")
            if self.path.exists():
                self._repair(n)
        except OSError as e:
            self._failed(e)
        return read_events(self.path, n)

    def _repair(self, n: int) -> None:
        body, newline, torn = self.path.read_bytes().rpartition(b"\n")
        lines = body.split(b"\n")[-n:] if body else []
        sound = [line for line in lines if _sound(line)]
        if len(sound) < len(lines):
            aside = self.path.with_name(self.path.name + ".corrupt")
            os.replace(self.path, aside)
            self.path.write_bytes(b"".join(line + b"\n" for line in sound))
            log.warning("%s holds lines that are no events; set aside as %s", self.path, aside)
        elif torn and _sound(torn):
            with self.path.open("ab") as f:
                f.write(b"\n")
        elif torn:
            os.truncate(self.path, len(body) + len(newline))

    def append(self, event: Event) -> None:
        if len(self._waiting) == self._waiting.maxlen:
            self._lost += 1
        self._waiting.append(json.dumps(event.as_dict()).encode() + b"\n")
        waited = len(self._waiting) - 1
        try:
            self._write()
        except OSError as e:
            self._failed(e)
            return
        if self._broken:
            self._broken = False
            gap = f"; {self._lost} older ones are lost" if self._lost else ""
            log.warning("%s is written again, with %d events that had waited%s", self.path, waited, gap)
            self._lost = 0

    def _write(self) -> None:
        # opened each time: a file that somebody moved or removed comes back, and events are rare
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o640)
        try:
            size = os.fstat(fd).st_size
            while self._waiting:
                line = self._waiting[0]
                if size and size + len(line) > self._max_bytes:
                    os.replace(self.path, predecessor(self.path))
                    os.close(fd)
                    fd = -1
                    fd = os.open(self.path, flags, 0o640)
                    size = os.fstat(fd).st_size
                if os.write(fd, line) < len(line):
                    os.ftruncate(fd, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                size += len(line)
                self._waiting.popleft()
        finally:
            if fd >= 0:
                os.close(fd)

    def _failed(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            log.error(
                "%s cannot be written (%s); events stay in memory until it can", self.path, error.strerror or error
            )


def _sound(line: bytes) -> bool:
    try:
        parse(line)
    except ValueError:
        return False
    return True
