"""Server-sent events: `/events`, and `/stream`, which also has the status and the hit rates whenever they change.

No stream has a queue: events are read from the log's memory, and of the rest only the newest is sent. A client that
takes nothing is cut off, and its browser comes back by itself with the number of the last event that it saw.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from yrnode.api.node import Node

MOST_STREAMS = 64
"""Event streams at once; each costs a connection and a task."""

HEARTBEAT_S = 15.0
LOOK_S = 0.5
STUCK_S = 30.0
RENEW_S = 5.0
"""What has not changed is sent so often all the same: the ages of its checks have."""

_PASSING = frozenset({"at", "since", "age_s", "took_s", "left_s", "clock_offset_s", "frozen_since", "absent_since"})
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
    streams = request.app[STREAMS]
    if len(streams) >= MOST_STREAMS:
        raise web.HTTPServiceUnavailable(text=f"{MOST_STREAMS} streams of events are open already")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    task = asyncio.current_task()
    streams.add(task)
    feed = node.events.subscribe(since)
    following = asyncio.ensure_future(feed.__anext__())
    sent = [0] * len(shared)
    try:
        await response.prepare(request)
        spoke = time.monotonic()
        # aiohttp does not end a handler whose client went away, so it is looked at
        while request.transport is not None and not request.transport.is_closing():
            data = b""
            for i, message in enumerate(shared):
                number, text = message.newest()
                if number != sent[i]:
                    sent[i] = number
                    data += text
            if not data:
                await asyncio.wait({following}, timeout=LOOK_S)
            if following.done():
                event = following.result()
                data += f"id: {event.seq}\ndata: {json.dumps(event.as_dict())}\n\n".encode()
                following = asyncio.ensure_future(feed.__anext__())
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
    finally:
        streams.discard(task)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await feed.aclose()
    return response


async def end_streams(app: web.Application) -> None:
    streams = app[STREAMS]
    for task in tuple(streams):
        task.cancel()


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _steady(v) for k, v in value.items() if k not in _PASSING}
    return value
