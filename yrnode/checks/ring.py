"""Whether the datasystem counts the worker in: its own key, and its address in the ring.

A worker that has lost either goes on saying "liveness check success". The store's word is taken only after it has
answered without a break for as long as the check's own threshold: after an outage a worker needs about 10 s to
come back.
"""

from __future__ import annotations

import asyncio

from yrnode.checks.base import Stateless, Target
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.store.errors import StoreError
from yrnode.store.keys import DatasystemKeys, ring_has
from yrnode.store.transport import within


class _StoreWord(Stateless):
    async def _read(self, key: str) -> bytes | Result | None:
        try:
            # sooner than this probe itself runs out of time, which would count against the worker
            found = await within(self.tools.store.get(key), self.spec.timeout_s * 0.75)
        except StoreError as e:
            return unknown(f"the store does not answer: {e}")
        except asyncio.TimeoutError:
            return unknown("the store does not answer in time")
        return found.value if found else None

    def _bad(self, evidence: str) -> Result:
        steady = self.tools.store_steady_s()
        if steady < self.spec.period_s * self.spec.failures:
            return unknown(f"{evidence}; the store answers only since {steady:.0f} s")
        return fail(evidence)


class WorkerKeyCheck(_StoreWord):
    """params: `address`, `cluster_name`."""

    async def probe(self, target: Target) -> Result:
        key = DatasystemKeys(self.param("cluster_name")).worker(self.param("address"))
        value = await self._read(key)
        if isinstance(value, Result):
            return value
        if value is None:
            return self._bad(f"{key} is absent")
        # <epoch-ns>;<state>[;host_id]
        state = value.decode("utf-8", "replace").split(";")[1:2]
        if state == ["ready"]:
            return ok(f"{key} says ready")
        return self._bad(f"{key} says {state[0] if state else value[:40]!r}")


class RingCheck(_StoreWord):
    """params: `address`, `cluster_name`."""

    async def probe(self, target: Target) -> Result:
        value = await self._read(DatasystemKeys(self.param("cluster_name")).ring)
        if isinstance(value, Result):
            return value
        if value is None:
            return self._bad("there is no ring")
        address = self.param("address")
        return (
            ok(f"{address} is in the ring")
            if ring_has(value, address)
            else self._bad(f"{address} is not in the ring")
        )
