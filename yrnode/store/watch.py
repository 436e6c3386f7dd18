"""A watch that lasts: it survives outages, compactions and frozen connections, and says how far it can be trusted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from yrnode.store.backoff import Backoff
from yrnode.store.errors import RevisionGone, StoreError, StoreUnavailable
from yrnode.store.interface import Event, Fingerprint, KeyValue, Listing, Stream

if TYPE_CHECKING:
    from yrnode.store.interface import Store

_log = logging.getLogger(__name__)
_GRACE_S = 0.5  # an event that the store's own read has already seen must arrive within this
_RETRY_S = (0.05, 1.0)  # first and longest wait; the longest stays under a third of a 5 s lease
_QUEUE = 1024  # batches; a consumer that is further behind makes the watch wait


def difference(known: Mapping[str, KeyValue], listing: Listing) -> tuple[Event, ...]:
    """What happened between `known` and the listing, in revision order: the last put of each key that differs,
    then the deletes, whose own revisions nobody can tell any more."""
    there = {kv.key for kv in listing.items}
    changed = [kv for kv in listing.items if known.get(kv.key) != kv]
    puts = [Event(kv.key, kv.mod_revision, kv) for kv in sorted(changed, key=lambda kv: kv.mod_revision)]
    return (*puts, *(Event(key, listing.revision) for key in sorted(known) if key not in there))


def fingerprint(known: Mapping[str, KeyValue]) -> Fingerprint:
    """What a probe of the store says if it holds exactly these keys."""
    return Fingerprint(max((kv.mod_revision for kv in known.values()), default=0), len(known))


class Watch:
    """An async iterator over batches of events: whole revisions, never half a transaction, all that has come so far.

    It never ends by itself. When the store comes back it goes on where it stopped. Where that is impossible (the
    revision was compacted, or the store was wiped or restored) it lists again and delivers the difference from what
    it had delivered before, as one batch: then the revisions may go back.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        since: Listing | None = None,
        *,
        idle_s: float = 2.0,
        on_close: Callable[[Watch], None] = lambda _: None,
    ) -> None:
        if since is not None and since.prefix != prefix:
            raise ValueError(f"the listing is of {since.prefix!r}, not of {prefix!r}")
        self._store = store
        self._prefix = prefix
        self._idle_s = idle_s
        self._on_close = on_close
        self._revision = since.revision if since else 0  # 0 = nothing known yet
        self._known = {kv.key: kv for kv in since.items} if since else {}
        self._backoff = Backoff(*_RETRY_S)
        self._batches: asyncio.Queue[tuple[Event, ...]] = asyncio.Queue(_QUEUE)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._asked = asyncio.Event()
        self.on_proof: Callable[[], None] = lambda: None
        """Called when what `prove` asked for has come."""
        self.error: StoreError | None = None
        self.unbroken_since: float | None = None
        """Monotonic time since when nothing can have been missed or late; None while the store does not answer."""
        self.proven_at: float | None = None
        """Monotonic time when the watch was last known to be complete: `idle_s` ago at most, while all is well."""

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        if self._closed:
            raise StopAsyncIteration
        self.start()
        batch = await self._batches.get()
        if not batch:  # put by close()
            self._batches.put_nowait(batch)
            raise StopAsyncIteration
        found = list(batch)
        while not self._batches.empty():
            batch = self._batches.get_nowait()
            if not batch:
                self._batches.put_nowait(batch)
                break
            found += batch
        return tuple(found)

    async def __aenter__(self) -> Watch:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to follow; the first step of an iteration does it too."""
        if self._task is None and not self._closed:
            self._task = asyncio.ensure_future(self._follow())

    def prove(self) -> None:
        """Ask the store at once whether anything was missed, not only when the stream has been quiet for a while."""
        self._asked.set()

    async def close(self) -> None:
        """Stop following; iterators end."""
        self._closed = True
        self.unbroken_since = None
        self._on_close(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        while not self._batches.empty():
            self._batches.get_nowait()
        self._batches.put_nowait(())

    async def _follow(self) -> None:
        while True:
            try:
                await self._catch_up()
                stream = await self._store.stream(self._prefix, self._revision + 1)
                try:
                    self._proven()
                    await self._deliver(stream)
                finally:
                    await stream.close()
            except StoreError as error:
                self._broke(error)
            except Exception as error:
                # A defect must not end a watch silently: it would look like a store where nothing happens.
                _log.exception("watch of %s", self._prefix)
                self._broke(StoreUnavailable(f"watch of {self._prefix}: {error!r}"))
            await asyncio.sleep(self._backoff.next_s())

    async def _catch_up(self) -> None:
        """Make sure that the store's history is the one we know; otherwise list again.

        A wiped store may reach our revision again before we are back, so the number alone proves nothing: the keys at
        that revision must be those that we know.
        """
        if self._revision:
            try:
                past = await self._store.list(self._prefix, revision=self._revision)
                if {kv.key: kv for kv in past.items} == self._known:
                    return
            except RevisionGone:
                pass
        listing = await self._store.list(self._prefix)
        events = difference(self._known, listing)
        self._revision = listing.revision
        self._known = {kv.key: kv for kv in listing.items}
        if events:
            await self._batches.put(events)

    async def _deliver(self, stream: Stream) -> None:
        """Hand events on until the stream breaks or turns out to be behind the store's own word."""
        reading = asyncio.ensure_future(stream.next())
        asked = asyncio.ensure_future(self._asked.wait())
        behind = wanted = False
        try:
            while True:
                timeout = _GRACE_S if behind else self._idle_s
                # once behind, only an event or the end of the grace is news
                waits = {reading} if behind else {reading, asked}
                await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if asked.done():
                    wanted = True
                    self._asked.clear()
                    asked = asyncio.ensure_future(self._asked.wait())
                if reading.done():
                    batch = reading.result()
                    self._learn(batch)
                    self._proven()
                    self._backoff.reset()
                    behind = False
                    await self._batches.put(batch)
                    reading = asyncio.ensure_future(stream.next())
                    continue
                # A frozen or half-open connection is as silent as a quiet one; only a read tells them apart.
                seen = await stream.probe()
                if seen == fingerprint(self._known):
                    self._proven()
                    if wanted:
                        wanted = False
                        self.on_proof()
                    self._backoff.reset()  # not at the opening: a stream that breaks at once must not be hammered
                    behind = False
                elif behind and not reading.done():
                    raise StoreUnavailable(
                        f"watch of {self._prefix}: the stream delivers nothing, the store has moved"
                    )
                else:
                    behind = True
        finally:
            reading.cancel()
            asked.cancel()
            await asyncio.gather(reading, asked, return_exceptions=True)

    def _learn(self, batch: tuple[Event, ...]) -> None:
        for event in batch:
            if event.kv is None:
                self._known.pop(event.key, None)
            else:
                self._known[event.key] = event.kv
        self._revision = batch[-1].revision

    def _proven(self) -> None:
        self.error = None
        self.proven_at = time.monotonic()
        if self.unbroken_since is None:
            self.unbroken_since = self.proven_at

    def _broke(self, error: StoreError) -> None:
        self.error = error
        self.unbroken_since = None
