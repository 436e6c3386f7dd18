"""A leased key through every kind of interruption: it lives or it lapses, and it never says anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from tests.store.conftest import Connect, until
from tests.store.test_gateway import MAY_HEAL
from tests.support.etcd import Etcd
from tests.support.proxy import Proxy, http_answer, proxy_to
from yrnode.store import KeptLease, KeyValue, Store, StoreUnavailable

TTL_S = 8
"""Long beside the short troubles: what a loaded machine adds to one must not make it a long one."""
VALUE = b'{"instance": "a1"}'
LOOK_S = 0.03
OBSERVER_S = 10.0

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
    "cut 8 s": cut(TTL_S),
    "half-open 8 s": half_open(TTL_S),
    **{f"{name} 8 s": answers(TTL_S, name) for name in ("500 text", "400 text", "200 html", "500 unknown code")},
}


class Kept:
    """A lease with one key, behind a proxy, and what an observer sees of the key."""

    def __init__(self, store: Store, key: str) -> None:
        self.store, self.key = store, key
        self.lease = KeptLease(store, TTL_S, self._put)
        self.leases: list[int] = []
        self.seen: set[bytes | None] = set()
        self.errors: set[type[Exception]] = set()
        self.broken_promises = 0
        self.watched = False
        self.now: KeyValue | None = None

    async def _put(self, lease: int) -> None:
        await self.store.put(self.key, VALUE, lease=lease)
        self.leases.append(lease)

    @property
    def promised(self) -> int:
        """The lease that keeps the key there; 0 where nothing is promised."""
        return self.lease.id if self.lease.alive and self.leases[-1:] == [self.lease.id] else 0

    def look(self, kv: KeyValue | None, before: int) -> None:
        """`before`: what was promised when the store was asked."""
        self.now = kv
        if not self.watched:
            return
        self.seen.add(kv.value if kv else None)
        # what is promised before the look and after it was promised at it
        if kv is None and before and before == self.promised:
            self.broken_promises += 1
        if self.lease.error is not None:
            self.errors.add(type(self.lease.error))

    async def present(self) -> None:
        """Until the key is there by the present lease, we know that it is, and the lease is renewed."""
        self.now = None
        await until(lambda: self.now and self.now.lease == self.promised and self.lease.error is None, 60)


async def observe(store: Store, prefix: str, every: Sequence[Kept]) -> None:
    """One look at all keys, again and again: so many observers of their own would be a load that etcd feels."""
    while True:
        before = [kept.promised for kept in every]
        there = {kv.key: kv for kv in (await store.list(prefix)).items}
        for kept, promised in zip(every, before, strict=True):
            kept.look(there.get(kept.key), promised)
        await asyncio.sleep(LOOK_S)


async def through(trouble: Trouble, proxy: Proxy, kept: Kept) -> None:
    """Trouble that begins at the worst moment: when half of the lease is gone, just before the renewal."""
    async with kept.lease:
        await kept.present()
        kept.watched = True
        while kept.lease.remaining_s > TTL_S * 0.55:
            await asyncio.sleep(0.01)
        await trouble(proxy)
        await kept.present()
        kept.watched = False


async def test_a_lease_through_trouble(connect: Connect, etcd: Etcd, prefix: str) -> None:
    """All at once, since each waits most of the time."""
    troubles = {**SHORT, **LONG}
    async with AsyncExitStack() as open_ones:
        proxies = [await open_ones.enter_async_context(proxy_to(etcd.url)) for _ in troubles]
        found = [Kept(connect(p.url, timeout_s=2.0), prefix + n) for n, p in zip(troubles, proxies, strict=True)]
        looking = asyncio.ensure_future(observe(connect(etcd.url, timeout_s=OBSERVER_S), prefix, found))
        going = asyncio.gather(*(through(*each) for each in zip(troubles.values(), proxies, found, strict=True)))
        try:
            await asyncio.wait({looking, going}, return_when=asyncio.FIRST_COMPLETED)
            assert not looking.done(), looking.exception()
            await going
        finally:
            looking.cancel()
            going.cancel()
            await asyncio.gather(looking, going, return_exceptions=True)
    for name, kept in zip(troubles, found, strict=True):
        assert kept.broken_promises == 0, name
        if name in SHORT:
            assert (len(kept.leases), kept.seen) == (1, {VALUE}), name
            assert kept.errors <= {StoreUnavailable}, name
        else:
            # absent for a while, and nobody may read more into it; then the same by another lease
            assert (len(kept.leases), kept.seen) == (2, {VALUE, None}), name
            assert kept.errors == {StoreUnavailable}, name
