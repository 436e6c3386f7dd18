"""A TCP proxy that can cut, hold back and delay what passes through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests.support.etcd import free_port


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


@asynccontextmanager
async def proxy_to(target: str) -> AsyncIterator[Proxy]:
    """A proxy in front of `target` (http://host:port), closed with all its connections at exit."""
    proxy = Proxy(target)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.cut()
