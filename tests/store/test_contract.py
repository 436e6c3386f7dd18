"""What every backend of the store must do, on real etcds of two versions."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from tests.store.conftest import Connect, events_until, put_when_up, until
from tests.support.etcd import Etcd
from tests.support.proxy import proxy_to
from yrnode.store import (
    Compare,
    Delete,
    Event,
    Get,
    KeptLease,
    LeaseGone,
    Put,
    RevisionGone,
    StoreRefused,
    StoreUnavailable,
    absent,
    create_is,
    mod_is,
    prefix_empty,
    present,
    unchanged,
    value_is,
    version_is,
)


def told(events: list[Event] | tuple[Event, ...]) -> list[tuple[str, bytes | None]]:
    """Key and value of each event; None for a delete."""
    return [(event.key, event.kv.value if event.kv else None) for event in events]


# Keys


async def test_put_get_list_delete(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    assert await store.get(prefix + "a") is None
    first = await store.put(prefix + "a", b"1")
    second = await store.put(prefix + "a", b"\x00\xff")
    await store.put(prefix + "b", b"")
    kv = await store.get(prefix + "a")
    assert kv is not None
    assert (kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease) == (
        b"\x00\xff",
        first,
        second,
        2,
        0,
    )
    listing = await store.list(prefix)
    assert [(kv.key, kv.value) for kv in listing.items] == [(prefix + "a", b"\x00\xff"), (prefix + "b", b"")]
    assert listing.revision == second + 1
    assert [kv.value for kv in (await store.list(prefix, revision=first)).items] == [b"1"]
    assert await store.delete(prefix + "a")
    assert not await store.delete(prefix + "a")
    assert await store.delete_prefix(prefix) == 1
    assert (await store.list(prefix)).items == ()


async def test_a_prefix_ends_where_it_should(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    stem = prefix + "n/"
    for key in (stem, stem + "é", stem + "\udcff", prefix + "n0", prefix + "n"):
        await store.put(key, b"x")
    assert [kv.key for kv in (await store.list(stem)).items] == [stem, stem + "é", stem + "\udcff"]
    assert await store.delete_prefix(stem) == 3
    assert [kv.key for kv in (await store.list(prefix)).items] == [prefix + "n", prefix + "n0"]


async def test_an_empty_prefix_deletes_nothing(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    await store.put(prefix, b"x")
    with pytest.raises(ValueError, match="every key"):
        await store.delete_prefix("")
    assert prefix in [kv.key for kv in (await store.list("")).items]


async def test_large_values_and_too_large_ones(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url, timeout_s=5)
    await store.put(prefix + "a", b"x" * 1_400_000)
    kv = await store.get(prefix + "a")
    assert kv is not None
    assert len(kv.value) == 1_400_000
    for size in (1_600_000, 2_200_000):
        with pytest.raises(StoreRefused, match="larg"):
            await store.put(prefix + "a", b"x" * size)


async def test_revisions_that_are_not_there(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    old = await store.put(prefix, b"1")
    now = await store.put(prefix, b"2")
    with pytest.raises(RevisionGone, match="future"):
        await store.list(prefix, revision=now + 1000)
    etcd.call("kv/compaction", {"revision": str(now)})
    with pytest.raises(RevisionGone, match="compacted"):
        await store.list(prefix, revision=old)


# Transactions


async def test_each_comparison_holds_and_fails_where_it_should(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    key, none = prefix + "in/a", prefix + "none"
    created = await store.put(key, b"1")
    changed = await store.put(key, b"2")
    for holds in (
        value_is(key, b"2"),
        mod_is(key, changed),
        create_is(key, created),
        version_is(key, 2),
        present(key),
        absent(none),
        mod_is(none, 0),
        prefix_empty(prefix + "out/"),
        Compare(prefix, "MOD", "LESS", changed + 1, prefix=True),
        Compare(key, "VALUE", "NOT_EQUAL", b"1"),
    ):
        assert (await store.txn([holds])).succeeded, holds
    for fails in (
        value_is(key, b"1"),
        value_is(none, b""),
        mod_is(key, created),
        create_is(key, changed),
        version_is(key, 1),
        present(none),
        absent(key),
        prefix_empty(prefix + "in/"),
        Compare(prefix, "MOD", "LESS", changed, prefix=True),
    ):
        assert not (await store.txn([fails])).succeeded, fails
        assert not (await store.txn([present(key), fails])).succeeded, fails


async def test_both_branches_do_their_ops_in_one_step(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    await store.put(prefix + "old/1", b"x")
    await store.put(prefix + "old/2", b"y")
    ops = (
        Get(prefix + "old/", prefix=True),
        Delete(prefix + "old/", prefix=True),
        Put(prefix + "new", b"z"),
        Get(prefix + "new"),
    )
    done = await store.txn([absent(prefix + "new")], ops, [Get(prefix + "new")])
    assert done.succeeded
    assert [[kv.value for kv in got] for got in done.got] == [[b"x", b"y"], [], [], [b"z"]]
    assert done.got[3][0].mod_revision == done.revision
    lost = await store.txn([absent(prefix + "new")], ops, [Get(prefix + "new"), Delete(prefix + "new")])
    assert not lost.succeeded
    assert [[kv.value for kv in got] for got in lost.got] == [[b"z"], []]
    assert (await store.list(prefix)).items == ()


async def test_unchanged_sees_puts_new_keys_and_deletes(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    assert (await store.txn(unchanged(await store.list(prefix)))).succeeded
    await store.put(prefix + "a", b"1")
    await store.put(prefix + "b", b"1")
    for change in (
        lambda: store.put(prefix + "a", b"1"),
        lambda: store.put(prefix + "c", b"1"),
        lambda: store.delete(prefix + "b"),
        lambda: store.delete_prefix(prefix),
        lambda: store.put(prefix + "a", b"1"),
    ):
        listing = await store.list(prefix)
        assert (await store.txn(unchanged(listing))).succeeded
        await change()
        assert not (await store.txn(unchanged(listing))).succeeded


async def test_only_one_of_many_swaps_wins(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url, timeout_s=5)
    seen = await store.put(prefix, b"n=1")
    swaps = [store.txn([mod_is(prefix, seen)], [Put(prefix, f"by {n}".encode())]) for n in range(20)]
    assert sum(result.succeeded for result in await asyncio.gather(*swaps)) == 1
    kv = await store.get(prefix)
    assert kv is not None
    assert kv.version == 2


async def test_a_bad_request_is_refused(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    with pytest.raises(StoreRefused, match="duplicate key") as caught:
        await store.txn([], [Put(prefix, b"1"), Put(prefix, b"2")])
    assert etcd.url in str(caught.value)
    with pytest.raises(StoreRefused, match="key is not provided"):
        await store.put("", b"")


# Leases


async def test_a_lease_that_runs_out_takes_its_keys(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    lease, ttl_s = await store.lease_grant(1)
    await store.put(prefix + "leased", b"1", lease=lease)
    await store.put(prefix + "plain", b"1")
    assert await store.lease_keepalive(lease) == ttl_s == 1
    async with store.watch(prefix, await store.list(prefix)) as watch:
        assert told(await events_until(watch, prefix + "leased")) == [(prefix + "leased", None)]
    assert await store.lease_keepalive(lease) == 0
    with pytest.raises(LeaseGone):
        await store.put(prefix + "leased", b"1", lease=lease)
    await store.lease_revoke(lease)
    assert [kv.key for kv in (await store.list(prefix)).items] == [prefix + "plain"]


async def test_a_kept_lease_outlives_its_ttl_and_ends_when_closed(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    granted: list[int] = []

    async def put(lease: int) -> None:
        granted.append(lease)
        if len(granted) == 1:
            raise StoreUnavailable("once, to be asked again")
        await store.put(prefix, b"1", lease=lease)

    kept = KeptLease(store, 2, put)
    assert not kept.alive
    async with kept:
        await until(lambda: len(granted) == 2)
        first, begun = kept.id, time.monotonic()
        assert granted == [first, first]
        while time.monotonic() < begun + 2.5:
            assert kept.alive
            assert 0 < kept.remaining_s <= 2
            await asyncio.sleep(0.05)
        kv = await store.get(prefix)
        assert kv is not None
        assert kv.lease == first == kept.id
    assert not kept.alive
    assert await store.get(prefix) is None


async def test_a_lost_lease_is_replaced_and_its_owner_told(connect: Connect, etcd: Etcd, prefix: str) -> None:
    async with proxy_to(etcd.url) as proxy:
        store, direct = connect(proxy.url), connect(etcd.url)
        granted: list[int] = []

        async def put(lease: int) -> None:
            await store.put(prefix, b"1", lease=lease)
            granted.append(lease)

        async with KeptLease(store, 1, put) as kept:
            await until(lambda: granted)
            async with direct.watch(prefix, await direct.list(prefix)) as watch:
                await proxy.cut()
                assert told(await events_until(watch, prefix)) == [(prefix, None)]
                assert not kept.alive
                assert kept.error is not None
                await proxy.open()
                assert told(await events_until(watch, prefix)) == [(prefix, b"1")]
            await until(lambda: len(set(granted)) > 1 and kept.id == granted[-1] and kept.error is None)


async def test_a_late_answer_does_not_lengthen_a_lease(connect: Connect, etcd: Etcd, prefix: str) -> None:
    async with proxy_to(etcd.url) as proxy:
        store = connect(proxy.url, timeout_s=2)
        await store.get(prefix)
        proxy.delay_s = 0.2

        async def put(_: int) -> None:
            pass

        async with KeptLease(store, 1, put) as kept:
            await until(lambda: kept.alive)
            assert kept.remaining_s <= 1 - 0.2


# Watches


async def test_a_watch_delivers_what_follows_a_listing_in_order(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    await store.put(prefix + "before", b"0")
    listing = await store.list(prefix)
    await store.put(prefix + "a", b"1")
    await store.put(prefix + "a", b"2")
    async with store.watch(prefix, listing) as watch:
        await store.delete(prefix + "a")
        await store.put("/elsewhere" + prefix, b"")
        await store.put(prefix + "end", b"")
        events = await events_until(watch, prefix + "end")
        assert told(events) == [
            (prefix + "a", b"1"),
            (prefix + "a", b"2"),
            (prefix + "a", None),
            (prefix + "end", b""),
        ]
        revisions = [event.revision for event in events]
        assert revisions == sorted(set(revisions))
        assert watch.unbroken_since is not None
        assert watch.error is None
    with pytest.raises(StopAsyncIteration):
        await anext(watch)


async def test_a_watch_without_a_listing_begins_with_what_is_there(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    await store.put(prefix + "b", b"1")
    await store.put(prefix + "a", b"2")
    async with store.watch(prefix) as watch:
        batch = await asyncio.wait_for(anext(watch), 5)
        assert told(batch) == [(prefix + "b", b"1"), (prefix + "a", b"2")]


async def test_a_transaction_arrives_whole(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    await store.put(prefix + "gone", b"")
    async with store.watch(prefix, await store.list(prefix)) as watch:
        await store.txn([], [Put(prefix + "a", b"1"), Delete(prefix + "gone"), Put(prefix + "b", b"2")])
        batch = await asyncio.wait_for(anext(watch), 5)
        assert sorted(told(batch), key=str) == sorted(
            [(prefix + "a", b"1"), (prefix + "gone", None), (prefix + "b", b"2")], key=str
        )


async def test_what_has_come_meanwhile_is_one_batch(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    async with store.watch(prefix, await store.list(prefix)) as watch:
        last = [await store.put(f"{prefix}{i}", b"x") for i in range(20)][-1]
        await until(lambda: watch._revision == last)
        batch = await asyncio.wait_for(anext(watch), 5)
        assert [event.key for event in batch] == [f"{prefix}{i}" for i in range(20)]
        await store.put(prefix, b"more")
        await until(lambda: watch._revision > last)
        await watch.close()
        with pytest.raises(StopAsyncIteration):
            await anext(watch)


async def test_a_wait_that_is_given_up_loses_no_event(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    async with store.watch(prefix, await store.list(prefix)) as watch:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(watch), 0.05)
        await store.put(prefix, b"1")
        assert told(await events_until(watch, prefix)) == [(prefix, b"1")]


async def test_closing_the_store_ends_its_watches(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    waiting = asyncio.ensure_future(anext(store.watch(prefix, await store.list(prefix))))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 2)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get(prefix)


async def test_a_watch_goes_on_after_a_kill_and_loses_nothing(connect: Connect, own_etcd: Etcd, prefix: str) -> None:
    store = connect(own_etcd.url)
    watch = store.watch(prefix, await store.list(prefix))
    await store.put(prefix + "a", b"before")
    await events_until(watch, prefix + "a")
    before = watch.unbroken_since
    own_etcd.kill()
    await until(lambda: watch.unbroken_since is None)
    assert isinstance(watch.error, StoreUnavailable)
    # what is sent before the client has noticed may have been done; what is not sent has not
    with pytest.raises(StoreUnavailable, match=own_etcd.url) as caught:
        await store.put(prefix + "b", b"lost")
    assert caught.value.unsent
    own_etcd.start(wait=False)
    await put_when_up(store, prefix + "b", b"at once")
    await store.put(prefix + "b", b"again")
    await store.delete(prefix + "b")
    await store.put(prefix + "end", b"")
    assert told(await events_until(watch, prefix + "end")) == [
        (prefix + "b", b"at once"),
        (prefix + "b", b"again"),
        (prefix + "b", None),
        (prefix + "end", b""),
    ]
    assert watch.unbroken_since is not None
    assert before is not None
    assert watch.unbroken_since > before


async def test_a_watch_lists_again_after_a_compaction(connect: Connect, etcd: Etcd, prefix: str) -> None:
    async with proxy_to(etcd.url) as proxy:
        store, direct = connect(proxy.url), connect(etcd.url)
        for name in ("kept", "changed", "gone", "replaced"):
            await direct.put(prefix + name, b"old")
        watch = store.watch(prefix, await store.list(prefix))
        await direct.put(prefix + "seen", b"1")
        await events_until(watch, prefix + "seen")

        await proxy.cut()
        await direct.put(prefix + "changed", b"1")
        await direct.delete(prefix + "gone")
        await direct.delete(prefix + "replaced")
        await direct.put(prefix + "new", b"2")
        await direct.put(prefix + "replaced", b"3")
        last = await direct.put(prefix + "changed", b"4")
        etcd.call("kv/compaction", {"revision": str(last), "physical": True})
        await proxy.open()

        batch = await asyncio.wait_for(anext(watch), 10)
        assert told(batch) == [
            (prefix + "new", b"2"),
            (prefix + "replaced", b"3"),
            (prefix + "changed", b"4"),
            (prefix + "gone", None),
        ]
        await direct.put(prefix + "end", b"")
        assert told(await events_until(watch, prefix + "end")) == [(prefix + "end", b"")]


async def test_a_watch_from_a_compacted_listing_delivers_the_difference(
    connect: Connect, etcd: Etcd, prefix: str
) -> None:
    store = connect(etcd.url)
    await store.put(prefix + "gone", b"1")
    listing = await store.list(prefix)
    await store.delete(prefix + "gone")
    last = await store.put(prefix + "new", b"2")
    etcd.call("kv/compaction", {"revision": str(last)})
    async with store.watch(prefix, listing) as watch:
        batch = await asyncio.wait_for(anext(watch), 5)
        assert told(batch) == [(prefix + "new", b"2"), (prefix + "gone", None)]


async def test_a_half_open_connection_is_noticed(connect: Connect, etcd: Etcd, prefix: str) -> None:
    async with proxy_to(etcd.url) as proxy:
        store, direct = connect(proxy.url), connect(etcd.url)
        watch = store.watch(prefix, await store.list(prefix))
        watch.start()
        await until(lambda: watch.unbroken_since)
        proxy.hold()
        await direct.put(prefix + "a", b"1")
        begun = time.monotonic()
        await until(lambda: watch.unbroken_since is None)
        assert time.monotonic() - begun < 5  # idle 0.3 s + timeout 1.5 s, on a busy machine
        proxy.release()
        await direct.put(prefix + "b", b"2")
        assert told(await events_until(watch, prefix + "b")) == [(prefix + "a", b"1"), (prefix + "b", b"2")]


async def test_a_quiet_watch_is_proven_again_and_again(connect: Connect, etcd: Etcd, prefix: str) -> None:
    store = connect(etcd.url)
    watch = store.watch(prefix, await store.list(prefix))
    watch.start()
    await until(lambda: watch.unbroken_since)
    since = watch.unbroken_since
    assert since is not None
    await until(lambda: watch.proven_at is not None and watch.proven_at > since + 0.6)
    assert watch.unbroken_since == since


async def test_a_frozen_etcd_is_an_outage_and_not_an_answer(connect: Connect, own_etcd: Etcd, prefix: str) -> None:
    store = connect(own_etcd.url)
    granted: list[int] = []

    async def put(lease: int) -> None:
        await store.put(prefix + "leased", b"1", lease=lease)
        granted.append(lease)

    async with KeptLease(store, 1, put) as kept, store.watch(prefix, await store.list(prefix)) as watch:
        await events_until(watch, prefix + "leased")
        await until(lambda: granted)
        own_etcd.freeze()
        calls = (
            store.get(prefix),
            store.list(prefix),
            store.put(prefix, b""),
            store.delete(prefix),
            store.delete_prefix(prefix),
            store.txn([absent(prefix)]),
            store.lease_grant(5),
            store.lease_keepalive(1),
            store.lease_revoke(1),
            store.status(),
        )
        begun = time.monotonic()
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, StoreUnavailable)
            assert "no answer in time" in str(error)
            assert own_etcd.url in str(error)
            assert not error.unsent
        assert time.monotonic() - begun < 4
        await until(lambda: not kept.alive and watch.unbroken_since is None)
        own_etcd.thaw()
        await until(lambda: kept.alive and kept.id == granted[-1])
        await put_when_up(store, prefix + "end", b"")
        events = await events_until(watch, prefix + "end")
        leased = [value for key, value in told(events) if key == prefix + "leased"]
        # Its own lease had run out while it was frozen, or it found the renewals that had waited: both end well.
        assert leased == [None, b"1"] * (len(granted) - 1)
        assert await store.get(prefix + "leased") is not None


@pytest.mark.parametrize("outgrown", [False, True])
async def test_a_wiped_store_is_not_taken_for_the_old_one(
    connect: Connect, own_etcd: Etcd, prefix: str, outgrown: bool
) -> None:
    """Also when it has more revisions than the old one before the watch is back."""
    async with proxy_to(own_etcd.url) as proxy:
        store, direct = connect(proxy.url), connect(own_etcd.url)
        for name in ("a", "b"):
            await direct.put(prefix + name, b"old")
        listing = await store.list(prefix)
        watch = store.watch(prefix, listing)
        watch.start()
        await until(lambda: watch.unbroken_since)

        await proxy.cut()
        own_etcd.kill()
        shutil.rmtree(own_etcd.directory / "data")
        own_etcd.start()
        revision = await put_when_up(direct, prefix + "b", b"new")
        while outgrown and revision <= listing.revision:
            revision = await direct.put("/other", b"")
        await proxy.open()

        batch = await asyncio.wait_for(anext(watch), 10)
        assert told(batch) == [(prefix + "b", b"new"), (prefix + "a", None)]
        await direct.put(prefix + "end", b"")
        assert told(await events_until(watch, prefix + "end")) == [(prefix + "end", b"")]


# The member's own state


async def test_status_of_a_healthy_member(connect: Connect, etcd: Etcd) -> None:
    status = await connect(etcd.url).status()
    assert status.version.startswith("3.")
    assert status.leader == status.member > 0
    assert status.revision >= 1
    assert 0 < status.db_size_in_use <= status.db_size
    assert status.alarms == ()
    assert status.errors == ()


NOSPACE = ("--quota-backend-bytes=2097152",)


async def test_no_space_refuses_writes_until_it_is_disarmed(connect: Connect, own_etcd: Etcd, prefix: str) -> None:
    own_etcd.argv += NOSPACE
    own_etcd.restart()
    store = connect(own_etcd.url, timeout_s=5)
    lease, ttl_s = await store.lease_grant(60)

    async def fill() -> None:
        for _ in range(40):
            await store.put(prefix + "fill", b"x" * 200_000)

    with pytest.raises(StoreRefused, match="database space exceeded") as caught:
        await fill()
    assert own_etcd.url in str(caught.value)
    with pytest.raises(StoreRefused, match="database space exceeded"):
        await store.txn([present(prefix + "fill")], [Put(prefix + "n", b"2")])
    # What must go on: reads, renewals, the watch.
    revision = (await store.list(prefix)).revision
    assert await store.lease_keepalive(lease) == ttl_s
    status = await store.status()
    assert [(alarm.member, alarm.kind) for alarm in status.alarms or ()] == [(status.member, "NOSPACE")]
    assert status.db_size > 1_500_000
    own_etcd.call("kv/compaction", {"revision": str(revision), "physical": True})
    own_etcd.call("maintenance/defragment", {})
    with pytest.raises(StoreRefused, match="database space exceeded"):
        await store.put(prefix + "n", b"2")
    own_etcd.call("maintenance/alarm", {"action": "DEACTIVATE", "memberID": str(status.member), "alarm": "NOSPACE"})
    await store.put(prefix + "n", b"2")
    assert (await store.status()).alarms == ()
