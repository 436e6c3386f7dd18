"""Changes that were refused, and requests that could not be read: told, but never as often as somebody tries."""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import short
from yrnode.telemetry.events import EventLog

FIRST = 5
"""So many of a window are told one by one, the others as a number at its end."""
WINDOW_S = 60.0


class Refusals:
    """Events about refused changes: FIRST + 1 a window at most."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._told = 0
        self._more = 0
        self._last = ""
        self._window: asyncio.TimerHandle | None = None

    @property
    def room(self) -> bool:
        """Whether the next one is told by itself."""
        return self._told < FIRST

    def tell(self, request: web.Request, who: str, why: str) -> None:
        """`who` asked for a change that is refused, and `why`."""
        path = ascii(request.path)[1:-1][:80]
        self._last = f"{request.method} {path} by {who}"
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(WINDOW_S, self.close)
        if not self.room:
            self._more += 1
            return
        self._told += 1
        self._emit(f"refused: {self._last}", why)

    def close(self) -> None:
        """The end of the window: what was only counted is told."""
        if self._window is not None:
            self._window.cancel()
            self._window = None
        if self._more:
            self._emit(f"{self._more} more changes were refused within {WINDOW_S:g} s; the last: {self._last}", "")
        self._told = self._more = 0

    def _emit(self, text: str, why: str) -> None:
        self._events.emit("yrnode", "refused", Cause(Reason.OPERATOR, text, why))


class Rarely(logging.Filter):
    """Lets one record through in WINDOW_S, as a warning: anybody can send what is no HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self._next = float("-inf")
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ConnectionError):
            return False  # a client that goes away is nothing to tell
        if now < self._next:
            self._left_out += 1
            return False
        more = f"; {self._left_out} more since the last such line" if self._left_out else ""
        said = f"{type(error).__name__}: {short(ascii(str(error))[1:-1], 200)}" if error else "no reason given"
        record.msg, record.args, record.exc_info = f"a request could not be served ({said}){more}", (), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        self._next, self._left_out = now + WINDOW_S, 0
        return True
