"""Three members of which one is lost, for every backend: calls and watches go on through the others."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.store.conftest import Connect, events_until, until
from tests.store.test_tls_and_users import NODE
from tests.support.etcd import Etcd
from tests.support.users import enable_auth
from yrnode.store import KeptLease, Put, Store, StoreUnavailable, absent
from yrnode.store.credentials import NONE, Credentials

ROUNDS = 20


async def leader_of(etcds: list[Etcd], connect: Connect, credentials: Credentials) -> Etcd:
    for etcd in etcds:
        status = await connect(etcd.url, credentials=credentials).status()
        if status.leader == status.member:
            return etcd
    raise AssertionError("no member leads")


async def write(store: Store, key: str, value: bytes) -> int:
    """A put that is repeated until it is known to be done; how often it was not known."""
    deadline = time.monotonic() + 30
    for failures in range(100):
        try:
            await store.put(key, value)
        except StoreUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        else:
            return failures
    raise AssertionError("too many failures")


@pytest.mark.parametrize(("fault", "credentials"), [("kill", NODE), ("freeze", NONE)], ids=["kill-user", "freeze"])
async def test_the_leader_is_lost(
    connect: Connect, own_etcds: list[Etcd], prefix: str, fault: str, credentials: Credentials
) -> None:
    if credentials.user:
        enable_auth(own_etcds[0].call, prefix)
    urls = [etcd.url for etcd in own_etcds]
    leader = await leader_of(own_etcds, connect, credentials)
    # it is asked first, and the watch hangs on it
    ours = [leader.url, *(url for url in urls if url != leader.url)]
    store = connect(*ours, timeout_s=3.0, credentials=credentials)
    granted: list[int] = []

    async def put(lease: int) -> None:
        granted.append(lease)
        await store.put(prefix + "leased", b"1", lease=lease)

    async with KeptLease(store, 10, put) as kept, store.watch(prefix, await store.list(prefix)) as watch:
        await events_until(watch, prefix + "leased")
        begun = time.monotonic()
        leader.kill() if fault == "kill" else leader.freeze()
        await write(store, prefix + "after", b"1")
        assert time.monotonic() - begun < 20
        await events_until(watch, prefix + "after")
        # from now on nobody waits for the lost one
        for n in range(ROUNDS):
            assert (await store.txn([absent(f"{prefix}n{n}")], [Put(f"{prefix}n{n}", b"1")])).succeeded
        await events_until(watch, f"{prefix}n{ROUNDS - 1}")
        await until(lambda: kept.error is None and watch.unbroken_since is not None)
        assert len(granted) == 1
        kv = await store.get(prefix + "leased")
        assert kv is not None
        assert kv.lease == kept.id == granted[0]
        if fault == "kill":
            leader.start(wait=False)
        else:
            leader.thaw()
        await write(store, prefix + "end", b"1")
        await events_until(watch, prefix + "end")


async def test_two_of_three_are_lost_and_one_returns(connect: Connect, own_etcds: list[Etcd], prefix: str) -> None:
    store = connect(*(etcd.url for etcd in own_etcds))
    watch = store.watch(prefix, await store.list(prefix))
    await store.put(prefix + "a", b"1")
    await events_until(watch, prefix + "a")
    own_etcds[0].kill()
    own_etcds[1].kill()
    await until(lambda: watch.unbroken_since is None)
    with pytest.raises(StoreUnavailable):
        await store.get(prefix + "a")
    own_etcds[1].start(wait=False)
    await write(store, prefix + "b", b"2")
    await events_until(watch, prefix + "b")
