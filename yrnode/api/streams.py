"""Server-sent events: `/events`, and `/stream`, which also has the status and the hit rates whenever they change.

No stream has a queue: events are read from the log's memory, and of the rest only the newest is sent. A client that
takes nothing is cut off, and its browser comes back by itself with the number of the last event that it saw.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from aiohttp import web

from yrnode.api.node import Node
from yrnode.model.event import Event
from yrnode.telemetry.events import EventLog

MOST_STREAMS = 64
"""Event streams, and requests that wait for an event, at once; each costs a connection and a task."""

HEARTBEAT_S = 15.0
LOOK_S = 0.5
STUCK_S = 30.0
RENEW_S = 5.0
"""What has not changed is sent so often all the same: the ages of its checks have."""

_PASSING = frozenset(
    {"at", "since", "age_s", "took_s", "left_s", "elapsed_s", "clock_offset_s", "frozen_since", "absent_since"}
)
"""Keys of the status that move though nothing has happened."""

STREAMS = web.AppKey("streams", set[Any])


class Shared:
    """One kind of message, made at most once in `period_s` however many streams read it."""

    def __init__(self, name: str, period_s: float, make: Callable[[], dict[str, Any]]) -> None:
        self._name = name
        self._period_s = period_s
        self._make = make
        self._made = self._renewed = float("-inf")
        self._key: Any = None
        self._number = 0
        self._data = b""

    def newest(self) -> tuple[int, bytes]:
        """The message and its number, which grows with each that is worth sending."""
        now = time.monotonic()
        if now - self._made >= self._period_s:
            self._made = now
            found = self._make()
            key = _steady(found)
            if key != self._key or now - self._renewed >= RENEW_S:
                self._key, self._renewed = key, now
                self._number += 1
                self._data = f"event: {self._name}\ndata: {json.dumps(found)}\n\n".encode()
        return self._number, self._data


async def follow(
    request: web.Request, node: Node, since: int | None, shared: Sequence[Shared] = ()
) -> web.StreamResponse:
    """Events after number `since` for ever, and of `shared` the newest. HTTP 503 beyond MOST_STREAMS."""
    if request.method != "GET":
        # it would hold a place and be sent nothing
        raise web.HTTPMethodNotAllowed(request.method, ["GET"])
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    response.force_close()
    sent = [0] * len(shared)
    with _place(request):
        try:
            await response.prepare(request)
            spoke = time.monotonic()
            async with _Following(node.events, since) as feed:
                while not _gone(request):
                    data = b""
                    for i, message in enumerate(shared):
                        number, text = message.newest()
                        if number != sent[i]:
                            sent[i] = number
                            data += text
                    event = await feed.next(0.0 if data else LOOK_S)
                    if event is not None:
                        data += _message(event)
                    if not data and time.monotonic() - spoke >= HEARTBEAT_S:
                        data = b": still here\n\n"
                    if data:
                        spoke = time.monotonic()
                        await asyncio.wait_for(response.write(data), STUCK_S)
        except asyncio.TimeoutError:
            # a reader that takes nothing for so long is gone; what it has not taken is dropped with it
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
    return response


async def await_event(request: web.Request, events: EventLog, since: int, seconds: float) -> None:
    """Until an event after `since`, the end of the time, or the client has gone. HTTP 503 beyond MOST_STREAMS."""
    end = time.monotonic() + seconds
    with _place(request):
        async with _Following(events, since) as feed:
            while (left := end - time.monotonic()) > 0 and not _gone(request):
                if await feed.next(min(LOOK_S, left)) is not None:
                    return


@contextmanager
def _place(request: web.Request) -> Iterator[None]:
    """One of MOST_STREAMS."""
    streams = request.app[STREAMS]
    if len(streams) >= MOST_STREAMS:
        text = f"{MOST_STREAMS} streams of events are open already"
        raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "5"})
    task = asyncio.current_task()
    streams.add(task)
    try:
        yield
    finally:
        streams.discard(task)


class _Following:
    """A subscription to events that can be looked at for a while, and again."""

    def __init__(self, events: EventLog, since: int | None) -> None:
        self._feed = events.subscribe(since)

    async def __aenter__(self) -> _Following:
        self._next = asyncio.ensure_future(self._feed.__anext__())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._next.cancel()
        await asyncio.gather(self._next, return_exceptions=True)
        await self._feed.aclose()

    async def next(self, seconds: float) -> Event | None:
        """The next event, None if there is none within `seconds`; 0 looks at what is there."""
        if seconds:
            await asyncio.wait({self._next}, timeout=seconds)
        if not self._next.done():
            return None
        event = self._next.result()
        self._next = asyncio.ensure_future(self._feed.__anext__())
        return event


@lru_cache(maxsize=64)
def _message(event: Event) -> bytes:
    """Made once, however many streams read it."""
    return f"id: {event.seq}\ndata: {json.dumps(event.as_dict())}\n\n".encode()


def _gone(request: web.Request) -> bool:
    # aiohttp does not end a handler whose client went away, so it is looked at
    return request.transport is None or request.transport.is_closing()


async def end_streams(app: web.Application) -> None:
    streams = app[STREAMS]
    for task in tuple(streams):
        task.cancel()


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _steady(v) for k, v in value.items() if k not in _PASSING}
    return value
