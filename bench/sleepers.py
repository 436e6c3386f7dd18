"""Children that do nothing but say that they are there: the same ones under each supervisor."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

SCRIPT = 'echo "$0 $$" > "$BIRTHS"; exec sleep 1000'


def argv(name: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", SCRIPT, name)


@dataclass
class Births:
    """A pipe with a name into which each child writes its name and its pid as it starts.

    `pids`: of the latest child of each name; `at`: when its word came, monotonic seconds.
    """

    path: Path
    pids: dict[str, int] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        os.mkfifo(self.path)
        # both ends, so that it never ends and no child waits for a reader
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    @property
    def fd(self) -> int:
        return self._fd

    def read(self) -> None:
        try:
            got = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        now = time.monotonic()
        *lines, self._rest = (self._rest + got).split(b"\n")
        for line in lines:
            name, pid = line.decode().split()
            self.pids[name], self.at[name] = int(pid), now

    def close(self) -> None:
        os.close(self._fd)


class Words:
    """The lines that a supervisor says, each with the time at which it came."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.lines: list[tuple[float, str]] = []
        self._rest = b""
        os.set_blocking(fd, False)

    def read(self) -> None:
        try:
            got = os.read(self.fd, 65536)
        except BlockingIOError:
            return
        now = time.monotonic()
        *lines, self._rest = (self._rest + got).split(b"\n")
        self.lines += [(now, line.decode(errors="replace")) for line in lines]


class Source(Protocol):
    @property
    def fd(self) -> int: ...
    def read(self) -> None: ...


def wait_all(sources: Iterable[Source], condition: Callable[[], bool], seconds: float) -> bool:
    """Read all of them until `condition()` is true; whether it was in time."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source.fd, selectors.EVENT_READ, source)
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(min(left, 1.0)):
                key.data.read()
    return True
