"""A leased key through every kind of interruption: it lives or it lapses, and it never says anything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tests.store.conftest import Connect
from tests.store.test_gateway import MAY_HEAL
from tests.support.etcd import Etcd
from tests.support.proxy import Proxy, http_answer, proxy_to
from yrnode.store import KeptLease, Store, StoreUnavailable

TTL_S = 5
VALUE = b'{"instance": "a1"}'

Trouble = Callable[[Proxy], Awaitable[None]]


def cut(seconds: float) -> Trouble:
    async def trouble(proxy: Proxy) -> None:
        await proxy.cut()
        await asyncio.sleep(seconds)
        await proxy.open()

    return trouble


def half_open(seconds: float) -> Trouble:
    async def trouble(proxy: Proxy) -> None:
        proxy.hold()
        await asyncio.sleep(seconds)
        proxy.release()

    return trouble


def late(seconds: float, each_s: float) -> Trouble:
    async def trouble(proxy: Proxy) -> None:
        proxy.delay_s = each_s
        await asyncio.sleep(seconds)
        proxy.delay_s = 0

    return trouble


def answers(seconds: float, name: str) -> Trouble:
    async def trouble(proxy: Proxy) -> None:
        await proxy.say(http_answer(*MAY_HEAL[name]))
        await asyncio.sleep(seconds)
        await proxy.cut()
        proxy.answer = b""
        await proxy.open()

    return trouble


# half of the lease is left when they begin: what is shorter than that never costs it
SHORT: dict[str, Trouble] = {
    "cut 1 s": cut(1),
    "cut 2 s": cut(2),
    "half-open 1.5 s": half_open(1.5),
    # every answer takes most of its time: two renewals fit into the lease all the same
    "1 s late": late(8, 1.0),
    # etcd hears every renewal, and only we do not know it
    "2 s late": late(8, 2.0),
    **{f"{name} 2 s": answers(2, name) for name in ("500 text", "503 html", "503 json", "500 unknown code")},
}
LONG: dict[str, Trouble] = {
    "cut 7 s": cut(TTL_S + 2),
    "cut 12 s": cut(12),
    "half-open 7 s": half_open(TTL_S + 2),
    **{f"{name} 8 s": answers(8, name) for name in ("500 text", "400 text", "200 html", "500 unknown code")},
}


class Kept:
    """A lease with one key, behind a proxy, and what an observer sees of the key."""

    def __init__(self, store: Store, observer: Store, key: str) -> None:
        self.store, self.observer, self.key = store, observer, key
        self.lease = KeptLease(store, TTL_S, self._put)
        self.leases: list[int] = []
        self.seen: set[bytes | None] = set()
        self.errors: set[type[Exception]] = set()
        self.broken_promises = 0

    async def _put(self, lease: int) -> None:
        await self.store.put(self.key, VALUE, lease=lease)
        self.leases.append(lease)

    async def look(self) -> None:
        while True:
            kv = await self.observer.get(self.key)
            self.seen.add(kv.value if kv else None)
            # what is promised after the look was promised at it
            if kv is None and self.lease.alive and self.lease.id == self.leases[-1]:
                self.broken_promises += 1
            if self.lease.error is not None:
                self.errors.add(type(self.lease.error))
            await asyncio.sleep(0.03)

    async def present(self) -> None:
        """Until the key is there by the present lease, and that is renewed."""
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            kv = await self.observer.get(self.key)
            if kv is not None and kv.lease == self.lease.id and self.lease.error is None:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"the key did not come back: {self.lease.error}")


async def through(trouble: Trouble, connect: Connect, etcd: Etcd, key: str) -> Kept:
    """Trouble that begins at the worst moment: when half of the lease is gone, just before the renewal."""
    async with proxy_to(etcd.url) as proxy:
        kept = Kept(connect(proxy.url, timeout_s=2.0), connect(etcd.url), key)
        async with kept.lease:
            await kept.present()
            looking = asyncio.ensure_future(kept.look())
            while kept.lease.remaining_s > TTL_S * 0.55:
                await asyncio.sleep(0.01)
            await trouble(proxy)
            await kept.present()
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        return kept


async def test_a_lease_through_trouble(connect: Connect, etcd: Etcd, prefix: str) -> None:
    """All at once, since each waits most of the time."""
    troubles = {**SHORT, **LONG}
    found = await asyncio.gather(*(through(t, connect, etcd, prefix + name) for name, t in troubles.items()))
    for name, kept in zip(troubles, found, strict=True):
        assert kept.broken_promises == 0, name
        if name in SHORT:
            assert (len(kept.leases), kept.seen) == (1, {VALUE}), name
            assert kept.errors <= {StoreUnavailable}, name
        else:
            # absent for a while, and nobody may read more into it; then the same by another lease
            assert (len(kept.leases), kept.seen) == (2, {VALUE, None}), name
            assert kept.errors == {StoreUnavailable}, name
