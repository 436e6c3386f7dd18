"""Watches and leases where the store misbehaves as a real etcd cannot be made to."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.conftest import events_until, until
from yrnode.store import Event, KeptLease, KeyValue, Listing, Store, StoreUnavailable, Watch
from yrnode.store.interface import Fingerprint
from yrnode.store.watch import fingerprint


def kv(key: str, revision: int) -> KeyValue:
    return KeyValue(key, str(revision).encode(), revision, revision, 1)


class MuteStream:
    """A stream on which nothing ever arrives, although the endpoint answers reads."""

    def __init__(self, store: MuteStore) -> None:
        self.store = store

    async def next(self) -> tuple[Event, ...]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def probe(self) -> Fingerprint:
        if self.store.broken:
            raise StoreUnavailable("broken")
        return fingerprint({kv.key: kv for kv in self.store.items})

    async def close(self) -> None:
        self.store.open -= 1


class MuteStore:
    """A store of which only reads can be trusted."""

    def __init__(self) -> None:
        self.items: tuple[KeyValue, ...] = ()
        self.revision = 1
        self.streams = self.open = 0
        self.broken = False
        self.fault: Exception | None = None

    async def list(self, prefix: str, *, revision: int = 0) -> Listing:
        return Listing(prefix, self.revision, self.items)

    async def stream(self, prefix: str, revision: int) -> MuteStream:
        if self.fault:
            fault, self.fault = self.fault, None
            raise fault
        self.streams += 1
        self.open += 1
        return MuteStream(self)


async def test_a_stream_that_delivers_nothing_is_noticed_though_reads_work() -> None:
    store = MuteStore()
    async with Watch(cast(Store, store), "/", Listing("/", 1), idle_s=0.1) as watch:
        await until(lambda: watch.unbroken_since)
        begun = watch.unbroken_since
        store.items, store.revision = (kv("/a", 2),), 2
        events = await events_until(watch, "/a", 3)
        assert [event.revision for event in events] == [2]
        await until(lambda: watch.unbroken_since)
        assert watch.unbroken_since != begun
        assert store.streams == 2
    assert store.open == 0


async def test_a_quiet_stream_is_kept() -> None:
    store = MuteStore()
    async with Watch(cast(Store, store), "/", Listing("/", 1), idle_s=0.02) as watch:
        await until(lambda: watch.unbroken_since)
        begun = watch.unbroken_since
        assert begun is not None
        await until(lambda: (watch.proven_at or 0) > begun + 0.3)
        assert store.streams == 1


async def test_a_proof_that_is_asked_for_comes_at_once_and_is_told() -> None:
    store = MuteStore()
    told: list[float | None] = []
    async with Watch(cast(Store, store), "/", Listing("/", 1), idle_s=60.0) as watch:
        await until(lambda: watch.proven_at)
        first = watch.proven_at
        watch.on_proof = lambda: told.append(watch.proven_at)
        watch.prove()
        await until(lambda: told)
    assert first is not None
    assert told[0] is not None
    assert first < told[0]
    assert len(told) == 1


async def test_a_stream_that_breaks_again_and_again_is_opened_ever_more_slowly() -> None:
    store = MuteStore()
    store.broken = True
    async with Watch(cast(Store, store), "/", idle_s=0.001):
        await until(lambda: store.streams == 6)
        opened = time.monotonic()
        await until(lambda: store.streams == 7)
        assert time.monotonic() - opened > 0.4


async def test_a_defect_does_not_end_a_watch(caplog: pytest.LogCaptureFixture) -> None:
    store = MuteStore()
    store.fault = ZeroDivisionError("a defect")
    async with Watch(cast(Store, store), "/", idle_s=0.1) as watch:
        await until(lambda: watch.error)
        assert "a defect" in str(watch.error)
        await until(lambda: watch.unbroken_since)
    assert "a defect" in caplog.text


def test_a_listing_of_another_prefix_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="'/b'"):
        Watch(cast(Store, MuteStore()), "/a", Listing("/b", 1))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12))
def test_equal_fingerprints_mean_equal_keys(ops: list[tuple[str, bool]]) -> None:
    """At any two moments of one history."""
    state: dict[str, KeyValue] = {}
    moments = [dict(state)]
    for revision, (key, put) in enumerate(ops, start=2):
        if put:
            state[key] = kv(key, revision)
        else:
            state.pop(key, None)
        moments.append(dict(state))
    seen: dict[Fingerprint, dict[str, KeyValue]] = {}
    for moment in moments:
        assert seen.setdefault(fingerprint(moment), moment) == moment


class SlowLessor:
    """Grants leases and counts, and fails as told."""

    def __init__(self) -> None:
        self.leases = 0
        self.renewals: list[float] = []
        self.late_s = 0.0
        self.down = False
        self.gone = False

    async def lease_grant(self, ttl_s: int) -> tuple[int, float]:
        if self.down:
            raise StoreUnavailable("down")
        self.leases += 1
        return self.leases, float(ttl_s)

    async def lease_keepalive(self, lease: int) -> float:
        self.renewals.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.late_s)
        if self.down:
            raise StoreUnavailable("down")
        return 0.0 if self.gone else 1.0

    async def lease_revoke(self, lease: int) -> None:
        raise StoreUnavailable("down")


async def nothing(_: int) -> None:
    return


async def test_renewals_come_at_half_of_the_time_left_and_faster_in_trouble() -> None:
    store = SlowLessor()
    async with KeptLease(cast(Store, store), 1, nothing) as kept:
        await until(lambda: len(store.renewals) == 2)
        assert 0.4 < store.renewals[1] - store.renewals[0] < 0.7
        store.down = True
        await until(lambda: kept.error)
        before = len(store.renewals)
        await until(lambda: not kept.alive)
        assert len(store.renewals) - before >= 2
        store.down = False
        await until(lambda: kept.alive)
        # The store still knew the lease: its keys are there, and nobody needs to put them again.
        assert (kept.id, store.leases) == (1, 1)
        assert kept.error is None
    assert isinstance(kept.error, StoreUnavailable)  # the revocation failed, and close ended all the same


async def test_a_late_answer_brings_the_next_renewal_forward() -> None:
    store = SlowLessor()
    store.late_s = 0.4
    async with KeptLease(cast(Store, store), 1, nothing):
        await until(lambda: len(store.renewals) == 2)
        # 0.4 s for the answer, then half of the 0.6 s that it left.
        assert 0.65 < store.renewals[1] - store.renewals[0] < 0.8


async def test_a_new_grant_ends_the_word_about_the_old_one() -> None:
    store = SlowLessor()
    told: list[int] = []

    async def put(lease: int) -> None:
        told.append(lease)
        if lease == 1:
            raise StoreUnavailable("cannot put")

    async with KeptLease(cast(Store, store), 1, put) as kept:
        await until(lambda: len(told) >= 2)
        assert set(told) == {1}
        store.gone = True
        await until(lambda: 2 in told)
        store.gone = False
        assert kept.id == 2
        await until(lambda: len(store.renewals) >= 3)
        assert told[-1] == 2
        assert told.count(2) == 1


async def test_a_defect_of_the_owner_does_not_end_the_renewals(caplog: pytest.LogCaptureFixture) -> None:
    store = SlowLessor()
    calls: list[int] = []

    async def put(lease: int) -> None:
        calls.append(lease)
        if len(calls) == 1:
            raise ZeroDivisionError("a defect")

    async with KeptLease(cast(Store, store), 1, put):
        await until(lambda: len(calls) == 2 and len(store.renewals) >= 1)
    assert "a defect" in caplog.text
