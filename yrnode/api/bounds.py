"""What clients may take of the daemon: connections, bytes, seconds, and turns of its loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

MOST_CONNECTIONS = 128
"""On each listener. Beyond it the one that has been silent longest makes room, and where none is silent: HTTP 503."""

MOST_UNREAD = 128 * 1024
"""Bytes of one connection until its request is answered: headers and a body of 64 KiB."""

MOST_WAITING = 64
WAIT_S = 4.0
"""How many requests wait for their turn, and how long: beyond either HTTP 429."""

MOST_SENDING = 16
SEND_S = 10.0
"""How many answers wait for clients to read them (beyond it HTTP 503), and how long before they are cut off."""

REST = 2.0
MOST_REST_S = 0.2
"""The loop's time between two turns while others wait: a multiple of what the turn took, and seconds at most."""

MOST_REFUSING = 32
_REFUSING_S = 1.0
_FULL = json.dumps({"error": f"{MOST_CONNECTIONS} connections are open already"}).encode()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class Listener:
    """The connections of one listener. `make`: the HTTP protocol of a new one. `who`: the header Yrnode-Node."""

    def __init__(self, make: Callable[[], asyncio.Protocol], who: str) -> None:
        self._make = make
        self.who = who
        self.open: dict[Connection, None] = {}
        """In the order in which they began."""
        self.refusing = 0

    def accept(self) -> asyncio.Protocol:
        if len(self.open) >= MOST_CONNECTIONS:
            silent = next((c for c in self.open if not c.busy), None)
            if silent is None:
                return _Full(self)
            silent.abort()
        return Connection(self, self._make())


class Connection(asyncio.Protocol):
    """One connection: hands all on to `inner`, and cuts off who sends on and on. It serves one request."""

    def __init__(self, listener: Listener, inner: asyncio.Protocol) -> None:
        self._listener = listener
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._unread = 0
        self.busy = False
        """Whether a request is being answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._listener.open[self] = None
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        if self._unread > MOST_UNREAD:
            self.abort()
            return
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.open.pop(self, None)
        self._inner.connection_lost(exc)

    def abort(self) -> None:
        self._listener.open.pop(self, None)
        if self._transport is not None:
            self._transport.abort()


class _Full(asyncio.Protocol):
    """Says that there is no room, and goes. It waits for the request, whose arrival would else undo the answer."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._listener.refusing += 1
        if self._listener.refusing > MOST_REFUSING:
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(_REFUSING_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._transport.is_closing():
            head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
            head += f"Yrnode-Node: {self._listener.who}\r\n"
            self._transport.write(f"{head}Connection: close\r\nContent-Length: {len(_FULL)}\r\n\r\n".encode() + _FULL)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.refusing -= 1
        if self._timer is not None:
            self._timer.cancel()


class Turns:
    """One request at a time takes the loop, so that rounds and probes are never behind more than one of them."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def take(self, make: Callable[[], T]) -> T:
        """What `make` returns, when its turn has come. HTTP 429 where too many wait, or for too long."""
        if self._waiting >= MOST_WAITING:
            raise _too_many()
        self._waiting += 1
        try:
            await asyncio.wait_for(self._lock.acquire(), WAIT_S)
        except asyncio.TimeoutError:
            raise _too_many() from None
        finally:
            self._waiting -= 1
        began = time.monotonic()
        try:
            return make()
        finally:
            if self._waiting:
                rest = min(MOST_REST_S, REST * (time.monotonic() - began))
                asyncio.get_running_loop().call_later(rest, self._lock.release)
            else:
                self._lock.release()


class Sending:
    """Sends each answer, for `SEND_S` at most, and closes: who asks again connects again."""

    def __init__(self) -> None:
        self._now = 0

    async def send(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """What was sent: HTTP 503 instead where too many clients do not read their answers."""
        if self._now >= MOST_SENDING and _large(response):
            error = {"error": f"{MOST_SENDING} clients have not read their answers yet"}
            response = web.json_response(error, status=503, headers={"Retry-After": "1"})
        response.force_close()
        if request.transport is None:
            return response
        timer = asyncio.get_running_loop().call_later(SEND_S, request.transport.abort)
        self._now += 1
        try:
            await response.prepare(request)
            await response.write_eof()
        finally:
            self._now -= 1
            timer.cancel()
        return response


def busy(request: web.Request, whether: bool) -> None:
    """Mark the request's connection, so that none with an answer under way has to make room for another."""
    connection = request.transport and request.transport.get_protocol()
    if isinstance(connection, Connection):
        connection.busy = whether


def _large(response: web.StreamResponse) -> bool:
    """Whether it may not fit into the buffers of a socket whose reader is away."""
    body = response.body if isinstance(response, web.Response) else None
    return isinstance(body, bytes) and len(body) > 4096


def _too_many() -> web.HTTPTooManyRequests:
    return web.HTTPTooManyRequests(text="too many requests at once; try again", headers={"Retry-After": "1"})
