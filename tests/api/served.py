"""The servers in a thread of their own, watched while clients misbehave, and a client that sends what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.api.fake import FakeNode
from yrnode.api.server import Api

TICK_S = 0.005


class Served:
    """`held`: the most CPU seconds that others took between two looks of a task that is due each 5 ms: how long the
    loop was away, whatever else the machine does. `records`: what yrnode has logged."""

    def __init__(self, where: Path) -> None:
        self.node = FakeNode(where)
        self.path = where / "y.sock"
        self.held = 0.0
        self.records: list[str] = []
        self._gc_s = 0.0
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @property
    def port(self) -> int:
        return self._api.port

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(10)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(15)
        assert not self._thread.is_alive()

    def tasks(self) -> int:
        return asyncio.run_coroutine_threadsafe(self._count(), self._loop).result(10)

    async def _count(self) -> int:
        return len(asyncio.all_tasks())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        handler = logging.Handler()
        handler.emit = lambda r: self.records.append(r.getMessage())  # type: ignore[method-assign]
        logging.getLogger("yrnode.api").addHandler(handler)
        self._api = Api(self.node, "127.0.0.1", 0, self.path)
        await self._api.start()
        gc.callbacks.append(self._collects)
        ticking = asyncio.create_task(self._tick())
        self._up.set()
        await self._end.wait()
        ticking.cancel()
        gc.callbacks.remove(self._collects)
        await self._api.close()
        logging.getLogger("yrnode.api").removeHandler(handler)

    async def _tick(self) -> None:
        while True:
            before, collected = time.thread_time(), self._gc_s
            await asyncio.sleep(TICK_S)
            self.held = max(self.held, time.thread_time() - before - (self._gc_s - collected))

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        """The objects that the test's own tools pile up are collected by whichever thread comes first."""
        if threading.get_ident() == self._thread.ident:
            self._gc_s += time.thread_time() if phase == "stop" else -time.thread_time()


@contextlib.contextmanager
def served(where: Path) -> Iterator[Served]:
    found = Served(where)
    found.start()
    try:
        yield found
    finally:
        found.close()


def connect(to: int | Path, seconds: float = 5.0) -> socket.socket:
    """To a TCP port of this host, or to a Unix socket."""
    s = socket.socket(socket.AF_INET if isinstance(to, int) else socket.AF_UNIX)
    s.settimeout(seconds)
    s.connect(("127.0.0.1", to) if isinstance(to, int) else str(to))
    return s


def ask(to: int | Path, *parts: bytes, seconds: float = 5.0, half: bool = False) -> bytes:
    """What comes back until the head of an answer, the end, or the time is over. `half`: nothing more is sent."""
    with connect(to, seconds) as s:
        return answer(s, *parts, half=half)


def answer(s: socket.socket, *parts: bytes, half: bool = False) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        for part in parts:
            s.sendall(part)
        if half:
            s.shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        while b"\r\n\r\n" not in found and (more := s.recv(65536)):
            found += more
    return found


def code(found: bytes) -> int:
    """The status of an answer, 0 where there is none."""
    words = found.split(b" ", 2)
    return int(words[1]) if found.startswith(b"HTTP/1.") and len(words) > 1 and words[1].isdigit() else 0


def get(to: int | Path, path: str, seconds: float = 5.0) -> int:
    return code(ask(to, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), seconds=seconds))
