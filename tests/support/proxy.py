"""A TCP proxy that can cut, hold back and delay what passes through it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.support.etcd import free_port

T = TypeVar("T")


class Proxy:
    """`url` leads to the target. The switches act on open connections and on new ones."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname
        assert parts.port
        self._target = (parts.hostname, parts.port)
        self._port = free_port()
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._handlers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = f"http://127.0.0.1:{self._port}"
        self.delay_s = 0.0
        """Seconds that every piece of an answer is held back."""
        self.answer = b""
        """What every request is answered with, instead of the target, when it is not empty. See `say`."""
        self.connections = 0
        """How many were ever accepted."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def cut(self) -> None:
        """Close all connections and refuse new ones, until `open`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        for task in self._handlers:
            task.cancel()
        if self._handlers:
            await asyncio.wait(self._handlers)

    async def say(self, answer: bytes) -> None:
        """From now on every connection, also those that are open, gets this and no other answer."""
        await self.cut()
        self.answer = answer
        await self.open()

    def hold(self) -> None:
        """Half-open: connections are accepted and stay, and nothing passes, until `release`."""
        self._flowing.clear()

    def release(self) -> None:
        self._flowing.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        upstream: asyncio.StreamWriter | None = None
        pumps: set[asyncio.Task[None]] = set()
        try:
            await self._flowing.wait()
            if self.answer:
                await reader.read(65536)
                writer.write(self.answer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
                return
            answers, upstream = await asyncio.open_connection(*self._target)
            self._writers.add(upstream)
            pumps = {
                asyncio.ensure_future(self._pump(reader, upstream, answer=False)),
                asyncio.ensure_future(self._pump(answers, writer, answer=True)),
            }
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, upstream):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answer: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if answer and self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()


def http_answer(status: int, kind: str, body: str) -> bytes:
    """The bytes of an HTTP answer after which the connection ends."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body.encode())}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


class Switched:
    """A proxy on a thread of its own, for tests that block. Its words are `Proxy`'s."""

    def __init__(self, target: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._proxy = self._run(self._make(target))
        self.url = self._proxy.url

    async def _make(self, target: str) -> Proxy:
        proxy = Proxy(target)
        await proxy.open()
        return proxy

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def cut(self) -> None:
        self._run(self._proxy.cut())

    def open(self) -> None:
        """The end of a cut, or of an answer of our own."""
        self._proxy.answer = b""
        self._run(self._proxy.open())

    def say(self, answer: bytes) -> None:
        self._run(self._proxy.say(answer))

    def hold(self) -> None:
        self._loop.call_soon_threadsafe(self._proxy.hold)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._proxy.release)

    def delay(self, seconds: float) -> None:
        """Hold every piece of an answer back."""
        self._proxy.delay_s = seconds

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@asynccontextmanager
async def proxy_to(target: str) -> AsyncIterator[Proxy]:
    """A proxy in front of `target` (http://host:port), closed with all its connections at exit."""
    proxy = Proxy(target)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.cut()
