"""A lease that keeps itself alive, and is replaced when it was lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from yrnode.store.backoff import Backoff
from yrnode.store.errors import StoreError

if TYPE_CHECKING:
    from yrnode.store.interface import Store

_log = logging.getLogger(__name__)
_FIRST_RETRY_S = 0.05
_LEAST_PAUSE = 1 / 20
"""Of the TTL: what a lease that is about to run out is tried again after."""


class KeptLease:
    """One lease of `ttl_s` seconds for as long as it runs.

    `on_grant(lease)` is awaited for the first lease and for each that replaces a lost one, again and again with a
    growing delay until it succeeds: there its owner puts the leased keys. It does not hold up renewals.
    Renewing fails silently for a while: ask `alive`, `remaining_s` and `error`.
    """

    def __init__(self, store: Store, ttl_s: int, on_grant: Callable[[int], Awaitable[object]]) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._on_grant = on_grant
        self._expires = 0.0
        self._backoff = Backoff(_FIRST_RETRY_S, ttl_s / 4)
        self._renewing: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self.id = 0
        self.error: StoreError | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds, on the monotonic clock, that the store has certainly promised. Never more than it will keep."""
        return max(self._expires - time.monotonic(), 0.0)

    @property
    def alive(self) -> bool:
        """Whether the store's promise still runs. False proves nothing: the store may keep the keys longer."""
        return self.remaining_s > 0

    async def __aenter__(self) -> KeptLease:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin: the first lease is granted as soon as the store answers."""
        if self._renewing is None:
            self._renewing = asyncio.ensure_future(self._run())

    async def close(self, *, revoke: bool = True) -> None:
        """Stop renewing. With `revoke` the leased keys go at once, if the store answers; otherwise within the TTL."""
        tasks = {task for task in (self._renewing, self._telling) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        lease, self.id, self._expires = self.id, 0, 0.0
        if revoke and lease:
            try:
                await self._store.lease_revoke(lease)
            except StoreError as error:
                self.error = error

    async def _run(self) -> None:
        while True:
            try:
                await self._renew()
                self.error = None
                self._backoff.reset()
                # Half of what is left, not of the TTL: an answer that came late has used some of it up.
                pause = self.remaining_s / 2
            except StoreError as error:
                self.error = error
                pause = self._pause()
            except Exception:
                # A defect must not end the renewals silently.
                _log.exception("renewing a lease")
                pause = self._pause()
            await asyncio.sleep(pause)

    def _pause(self) -> float:
        """Before the next try. While the lease still runs, never so long that the pause alone could miss it."""
        pause = self._backoff.next_s()
        return min(pause, max(self.remaining_s / 2, self._ttl_s * _LEAST_PAUSE)) if self.alive else pause

    async def _renew(self) -> None:
        if self.id:
            sent = time.monotonic()
            ttl_s = await self._store.lease_keepalive(self.id)
            if ttl_s > 0:
                self._expires = sent + ttl_s
                return
            self.id, self._expires = 0, 0.0
        sent = time.monotonic()
        self.id, ttl_s = await self._store.lease_grant(self._ttl_s)
        self._expires = sent + ttl_s
        if self._telling is not None:
            self._telling.cancel()
        self._telling = asyncio.ensure_future(self._tell(self.id))

    async def _tell(self, lease: int) -> None:
        backoff = Backoff(_FIRST_RETRY_S, self._ttl_s / 4)
        while True:
            try:
                await self._on_grant(lease)
                return
            except StoreError as error:
                self.error = error
            except Exception:
                _log.exception("putting the keys of a new lease")
            await asyncio.sleep(backoff.next_s())
