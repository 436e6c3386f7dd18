"""Whether the store takes writes: an alarm of any member makes all of them refuse, while reads and leases go on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from yrnode.checks.etcd import alarm_words, cure
from yrnode.model.cause import Cause, Reason
from yrnode.model.refusal import Refusal
from yrnode.node.pace import pause_s
from yrnode.node.world import World
from yrnode.store.errors import StoreError
from yrnode.store.interface import Store
from yrnode.telemetry.events import EventLog

log = logging.getLogger("yrnode.node")

PERIOD_S = 2.0


class StoreWrites:
    """Keeps `world.store_refusal`, and tells of its beginning and its end. `etcdctl`: how a cure begins.

    A store that cannot be asked changes nothing: an alarm outlives an outage.
    """

    def __init__(self, store: Store, etcdctl: str, world: World, events: EventLog, wake: Callable[[], None]) -> None:
        self._store = store
        self._etcdctl = etcdctl
        self._world = world
        self._events = events
        self._wake = wake
        self._task = asyncio.create_task(self._run(), name="store writes")

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except StoreError:
                # that it does not answer is another watch's to say
                pass
            except Exception:
                log.exception("the look at the store's alarms failed")
            await asyncio.sleep(pause_s(time.monotonic(), PERIOD_S))

    async def _look(self) -> None:
        alarms = await self._store.alarms()
        before = self._world.store_refusal
        if alarms:
            # the cure names a revision
            status = replace(await self._store.status(), alarms=alarms)
            now = time.monotonic() if before is None else before.since
            found = Refusal(now, alarm_words(alarms), cure(status, self._etcdctl))
            self._world.store_refusal = found
            if before is None or before.text != found.text:
                # the size of a full database moves with each look, the alarm does not
                cause = Cause(Reason.CHECK, f"the store refuses writes: {found.text}", "; ".join(found.cure), "etcd")
                self._events.emit("store", "refuses-writes", cause)
                self._wake()
        elif before is not None:
            self._world.store_refusal = None
            took = time.monotonic() - before.since
            self._events.emit(
                "store", "takes-writes", Cause(Reason.RECOVERED, f"the store takes writes again, after {took:.0f} s")
            )
            self._wake()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
