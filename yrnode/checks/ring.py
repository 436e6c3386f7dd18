"""Whether the datasystem counts the worker in: its own key, and its address in the ring.

A worker that has lost either goes on saying "liveness check success". The store's word is taken only after it has
answered without a break for as long as the check's own threshold: after an outage a worker needs about 10 s to
come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.store.errors import StoreError
from yrnode.store.interface import KeyValue
from yrnode.store.keys import DatasystemKeys, ring_has
from yrnode.store.transport import within

T = TypeVar("T")

REREAD_S = 60.0
"""A store that was replaced may count to the same revisions."""


class _StoreWord(Stateless):
    async def _read(self, asked: Awaitable[T]) -> T | Result:
        try:
            # sooner than this probe itself runs out of time, which would count against the worker
            return await within(asked, self.spec.timeout_s * 0.75)
        except StoreError as e:
            return unknown(f"the store does not answer: {e}")
        except asyncio.TimeoutError:
            return unknown("the store does not answer in time")

    def _bad(self, evidence: str) -> Result:
        steady = self.tools.store_steady_s()
        if steady < self.spec.period_s * self.spec.failures:
            return unknown(f"{evidence}; the store answers only since {steady:.0f} s")
        return fail(evidence)


class WorkerKeyCheck(_StoreWord):
    """params: `address`, `cluster_name`."""

    async def probe(self, target: Target) -> Result:
        key = DatasystemKeys(self.param("cluster_name")).worker(self.param("address"))
        found = await self._read(self.tools.store.get(key))
        if isinstance(found, Result):
            return found
        if found is None:
            return self._bad(f"{key} is absent")
        # <epoch-ns>;<state>[;host_id]
        state = found.value.decode("utf-8", "replace").split(";")[1:2]
        if state == ["ready"]:
            return ok(f"{key} says ready")
        return self._bad(f"{key} says {state[0] if state else found.value[:40]!r}")


class RingCheck(_StoreWord):
    """params: `address`, `cluster_name`.

    The ring grows with the cluster and hardly ever changes: it is read when it was written, and now and then.
    """

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._seen: KeyValue | None = None
        """Without its value, as it was when its value was read."""
        self._read_at = 0.0
        self._in_it = False

    async def probe(self, target: Target) -> Result:
        found = await self._read(self._look(DatasystemKeys(self.param("cluster_name")).ring))
        if isinstance(found, Result):
            return found
        if found is None:
            return self._bad("there is no ring")
        address = self.param("address")
        return ok(f"{address} is in the ring") if self._in_it else self._bad(f"{address} is not in the ring")

    async def _look(self, key: str) -> KeyValue | None:
        there = await self.tools.store.get(key, keys_only=True)
        if there is not None and (there != self._seen or self.clock() - self._read_at >= REREAD_S):
            whole = await self.tools.store.get(key)
            there = None if whole is None else replace(whole, value=b"")
            self._in_it = whole is not None and ring_has(whole.value, self.param("address"))
            self._seen, self._read_at = there, self.clock()
        return there
