"""etcd proves itself by a linearizable read, and before it counts as ready by a write too.

A TCP connect proves nothing: a frozen etcd accepts connections.
"""

from __future__ import annotations

import time

from yrnode.checks.base import Stateless, Target
from yrnode.checks.http import blamed
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.store.errors import StoreError, StoreRefused


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
        try:
            await self.tools.store.put(self.param("key"), value)
            stored = await self.tools.store.get(self.param("key"))
        except StoreError as e:
            return blamed(e, f"write and read: {e}")
        if stored is None or stored.value != value:
            return fail("a read after a write did not return what was written")
        return ok("write and linearizable read answered")
