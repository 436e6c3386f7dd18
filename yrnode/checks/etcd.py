"""etcd proves itself by a linearizable read, and before it counts as ready by a write too.

A TCP connect proves nothing: a frozen etcd accepts connections.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from yrnode.checks.base import Stateless, Target
from yrnode.checks.http import blamed
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.store.errors import StoreError, StoreRefused
from yrnode.store.interface import Alarm, Status

MB = 1024 * 1024
NEARLY_FULL = 0.9
_ALARMED = ("database space exceeded", "corrupt cluster")


class EtcdReadCheck(Stateless):
    """params: `key`."""

    async def probe(self, target: Target) -> Result:
        try:
            await self.tools.store.get(self.param("key"))
        except StoreRefused as e:
            # it answered: what it objects to is us, and a restart would not change its mind
            return unknown(f"linearizable read: {e}")
        except StoreError as e:
            return blamed(e, f"linearizable read: {e}")
        return ok("linearizable read answered")


class EtcdWriteCheck(Stateless):
    """params: `key`, which this check alone writes."""

    async def probe(self, target: Target) -> Result:
        value = f"{target.instance} {time.time_ns()}".encode()
        refused = ""
        try:
            try:
                await self.tools.store.put(self.param("key"), value)
            except StoreRefused as e:
                if not any(words in str(e) for words in _ALARMED):
                    raise
                refused = str(e)
            stored = await self.tools.store.get(self.param("key"))
        except StoreError as e:
            return blamed(e, f"write and read: {e}")
        if refused:
            # it serves reads and keeps leases, and a restart ends no alarm
            return unknown(f"linearizable read answered, writes refused: {refused}", proves=True)
        if stored is None or stored.value != value:
            return fail("a read after a write did not return what was written")
        return ok("write and linearizable read answered")


class EtcdAlarmCheck(Stateless):
    """Alarms of all members, and the size of the database. params: `quota` (bytes), where etcd does not say its own.

    A restart helps against neither: an alarm stays until somebody disarms it.
    """

    async def probe(self, target: Target) -> Result:
        try:
            status = await self.tools.store.status()
        except StoreError as e:
            return unknown(f"status: {e}")
        quota = status.quota or self.param("quota")
        size = f"db {status.db_size / MB:.1f} of {quota / MB:.0f} MB"
        if status.alarms:
            return fail(f"{alarm_words(status.alarms)}, {size}, writes refused")
        if status.db_size >= NEARLY_FULL * quota:
            return fail(f"{size}: writes will be refused soon; compact and defragment it")
        if status.alarms is None:
            return unknown(f"{size}; the alarms cannot be read")
        return ok(f"no alarm, {size}")


def alarm_words(alarms: Sequence[Alarm]) -> str:
    return ", ".join(f"alarm {a.kind} on member {a.member:x}" for a in alarms)


def cure(status: Status, endpoints: Sequence[str]) -> tuple[str, ...]:
    """The commands that end a NOSPACE alarm, in order. They are an operator's: what is compacted is gone.

    Empty where the alarm is another: what is corrupt needs a look first.
    """
    if not status.alarms or any(a.kind != "NOSPACE" for a in status.alarms):
        return ()
    etcdctl = f"etcdctl --endpoints={','.join(endpoints)}"
    return f"{etcdctl} compact {status.revision}", f"{etcdctl} defrag", f"{etcdctl} alarm disarm"
