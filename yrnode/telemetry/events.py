"""What happened, in order: in memory, in the log, in the events file, and to whoever listens."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from yrnode.model.cause import Cause
from yrnode.model.cover import Cover
from yrnode.model.event import Event
from yrnode.telemetry.event_file import EventFile
from yrnode.telemetry.log import FIELDS

log = logging.getLogger("yrnode.events")

LOST = "lost"
"""`what` of the marker that stands for events which a reader was too slow to get."""

LONGEST_TEXT = 2000
"""Characters of a cause's text and of its evidence that an event keeps."""


class EventLog:
    """Events of this node. To be used from one thread, that of the loop.

    `path`: the events file, None for memory only. It and its predecessor hold at most `max_bytes` bytes each.
    `keep`: events in memory. `cover` is laid over every cause. Numbers go on where the events file ends. Nothing here
    raises for a disk's sake.
    """

    def __init__(
        self,
        path: Path | None,
        max_bytes: int = 4 * 1024 * 1024,
        keep: int = 2000,
        clock: Callable[[], float] = time.time,
        cover: Callable[[str], str] | None = None,
    ) -> None:
        self._cover = cover or Cover()
        self.path = path
        self._file = EventFile(path, max_bytes, keep) if path else None
        self._events: deque[Event] = deque(self._file.load(keep) if self._file else (), maxlen=keep)
        self._last = max((e.seq for e in self._events), default=0)
        self._clock = clock
        self._wakers: set[asyncio.Event] = set()

    @property
    def last(self) -> int:
        """The newest event's number, 0 before the first."""
        return self._last

    def emit(self, target: str, what: str, cause: Cause, *, instance: str = "", generation: int = 0) -> Event:
        self._last += 1
        event = Event(
            seq=self._last,
            at=round(self._clock(), 3),
            target=target,
            what=what,
            reason=cause.reason.value,
            text=_bounded(self._cover(cause.text)),
            evidence=_bounded(self._cover(cause.evidence)),
            instance=instance,
            generation=generation,
            culprit=cause.component if cause.component != target else "",
        )
        self._events.append(event)
        level = logging.WARNING if cause.fault else logging.INFO
        log.log(level, "%s", event.line(), extra={FIELDS: journal_fields(event)})
        if self._file:
            self._file.append(event)
        for waker in self._wakers:
            waker.set()
        return event

    def since(self, seq: int) -> list[Event]:
        """Events after number `seq` that are still in memory, oldest first."""
        if seq >= self._last:
            return []
        if not self._events or self._events[0].seq > seq:
            return list(self._events)
        newer: list[Event] = []
        for event in reversed(self._events):
            if event.seq <= seq:
                break
            newer.append(event)
        return newer[::-1]

    def subscribe(self, since: int | None = None) -> AsyncGenerator[Event, None]:
        """Events after `since` (None: from now on), then each new one, for ever. A number that was not given yet is
        of another life, whose reader missed all of this one.

        A reader that falls behind by more than the memory holds gets one event with `what` "lost" for the gap;
        nobody waits for him.
        """
        if since is None:
            since = self._last
        return self._feed(since if since <= self._last else 0)

    async def _feed(self, seen: int) -> AsyncGenerator[Event, None]:
        waker = asyncio.Event()
        self._wakers.add(waker)
        try:
            while True:
                waker.clear()
                for event in self.since(seen):
                    missed = event.seq - seen - 1
                    # number 0 asks for all there is: what is no longer kept was not promised
                    if missed > 0 and seen > 0:
                        yield _lost(missed, event)
                    seen = event.seq
                    yield event
                if seen == self._last:
                    await waker.wait()
        finally:
            self._wakers.discard(waker)


def journal_fields(event: Event) -> dict[str, str]:
    """What the journal can be asked for, such as `journalctl YRNODE_TARGET=worker`."""
    fields = {
        "YRNODE_TARGET": event.target,
        "YRNODE_WHAT": event.what,
        "YRNODE_REASON": event.reason,
        "YRNODE_INSTANCE": event.instance,
        "YRNODE_GENERATION": str(event.generation or ""),
    }
    return {name: value for name, value in fields.items() if value}


def _lost(missed: int, before: Event) -> Event:
    text = f"{missed} events were not delivered to this reader"
    return Event(before.seq - 1, before.at, "yrnode", LOST, LOST, text)


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
