"""Whether the store answers, and since when: a linearizable read at a steady pace."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from yrnode.store.errors import StoreError
from yrnode.store.interface import Store

log = logging.getLogger("yrnode.node")

PERIOD_S = 1.0
PERIOD_DOWN_S = 0.2


class StoreWatch:
    """`changed` gets (available, evidence) at each change. It starts out unavailable."""

    def __init__(self, store: Store, key: str, changed: Callable[[bool, str], None]) -> None:
        self._store = store
        self._key = key
        self._changed = changed
        self.available = False
        self.since = time.monotonic()
        self._task = asyncio.create_task(self._run(), name="store watch")

    def steady_s(self) -> float:
        """For how many seconds it has answered without a break."""
        return time.monotonic() - self.since if self.available else 0.0

    async def _run(self) -> None:
        while True:
            try:
                await self._store.get(self._key)
            except StoreError as e:
                self._say(False, str(e))
            except Exception as e:
                # a fault of ours must not freeze the word that the store answers
                log.exception("the store's probe failed")
                self._say(False, f"the probe itself failed: {e!r}")
            else:
                self._say(True, "")
            await asyncio.sleep(PERIOD_S if self.available else PERIOD_DOWN_S)

    def _say(self, available: bool, evidence: str) -> None:
        if available is not self.available:
            self.available, self.since = available, time.monotonic()
            self._changed(available, evidence)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
