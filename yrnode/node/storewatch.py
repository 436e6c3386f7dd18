"""Whether the store answers, and since when: a linearizable read at a steady pace."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable

from yrnode.node.pace import pause_s
from yrnode.store.errors import StoreError, StoreRefused
from yrnode.store.interface import Put, Store, absent

log = logging.getLogger("yrnode.node")

PERIOD_S = 1.0
PERIOD_DOWN_S = 0.2


class StoreWatch:
    """`changed` gets (available, evidence, id) at each change. It starts out unavailable.

    `key` holds the uuid of the store's data, made once: another one means that the data was lost or replaced.
    """

    def __init__(self, store: Store, key: str, changed: Callable[[bool, str, str], None]) -> None:
        self._store = store
        self._key = key
        self._changed = changed
        self.available = False
        self.id = ""
        self.since = time.monotonic()
        self._task = asyncio.create_task(self._run(), name="store watch")

    def steady_s(self) -> float:
        """For how many seconds it has answered without a break."""
        return time.monotonic() - self.since if self.available else 0.0

    async def _run(self) -> None:
        while True:
            try:
                found = await self._identify()
            except StoreError as e:
                self._say(False, str(e))
            except Exception as e:
                # a fault of ours must not freeze the word that the store answers
                log.exception("the store's probe failed")
                self._say(False, f"the probe itself failed: {e!r}")
            else:
                self._say(True, "", found)
            await asyncio.sleep(pause_s(time.monotonic(), PERIOD_S) if self.available else PERIOD_DOWN_S)

    async def _identify(self) -> str:
        """The store's uuid, written when it has none; empty where a store that refuses writes has none."""
        kv = await self._store.get(self._key)
        if kv is None:
            try:
                await self._store.txn([absent(self._key)], [Put(self._key, uuid.uuid4().hex.encode())])
            except StoreRefused:
                return ""
            kv = await self._store.get(self._key)
        return kv.value.decode("utf-8", "replace") if kv is not None else ""

    def _say(self, available: bool, evidence: str, found: str = "") -> None:
        known = found or self.id
        if available is not self.available or known != self.id:
            if available is not self.available:
                self.since = time.monotonic()
            self.available, self.id = available, known
            self._changed(available, evidence, known)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
