"""etcd's reads and writes against a real etcd, and the worker's place in a store that is made up."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.checks.conftest import TARGET, Clock, tools
from tests.process.lab import until
from tests.support.etcd import Etcd, start_etcd
from yrnode.checks.etcd import EtcdAlarmCheck, EtcdReadCheck, EtcdWriteCheck, alarm_words, cure
from yrnode.checks.ring import RingCheck, WorkerKeyCheck
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict
from yrnode.store import Alarm, KeyValue, Status, StoreRefused, StoreUnavailable
from yrnode.store.gateway import EtcdGateway

KEY = "/yrnode/c/probe/n0"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with start_etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest_asyncio.fixture
async def store(etcd: Etcd) -> AsyncIterator[EtcdGateway]:
    if not etcd.running:
        etcd.start()
    found = EtcdGateway([etcd.url], timeout_s=0.5)
    yield found
    await found.close()


def spec(**params: object) -> CheckSpec:
    return CheckSpec("x", "x", 1.0, 1.0, params=params)


async def read(store: object) -> Result:
    return await EtcdReadCheck(spec(key=KEY), tools(store=store)).probe(TARGET)


async def write(store: object) -> Result:
    return await EtcdWriteCheck(spec(key=KEY), tools(store=store)).probe(TARGET)


async def test_an_etcd_in_order(store: EtcdGateway) -> None:
    assert (await read(store)).verdict is Verdict.OK
    assert (await write(store)).verdict is Verdict.OK
    first = await store.get(KEY)
    assert (await write(store)).verdict is Verdict.OK
    second = await store.get(KEY)
    assert first is not None
    assert second is not None
    assert first.value != second.value
    assert second.value.startswith(b"i1 ")


async def test_a_frozen_etcd_has_failed_in_time(etcd: Etcd, store: EtcdGateway) -> None:
    assert (await read(store)).verdict is Verdict.OK
    etcd.freeze()
    try:
        assert etcd.process is not None
        threads = Path(f"/proc/{etcd.process.pid}/task")
        # a signal takes its time to reach them all
        await until(lambda: all(" T " in (t / "stat").read_text() for t in threads.iterdir()))
        began = time.monotonic()
        for probe in (read, write):
            result = await asyncio.wait_for(probe(store), 5)
            assert result.verdict is Verdict.FAIL
            assert "no answer in time" in result.evidence
        assert time.monotonic() - began < 4
    finally:
        etcd.thaw()


async def test_a_dead_etcd(etcd: Etcd, store: EtcdGateway) -> None:
    etcd.kill()
    assert (await read(store)).verdict is Verdict.FAIL
    assert (await write(store)).verdict is Verdict.FAIL


async def test_an_etcd_without_space_reads_and_does_not_write(tmp_path: Path) -> None:
    with start_etcd(tmp_path, extra=["--quota-backend-bytes=16384"]) as full:
        store = EtcdGateway([full.url], timeout_s=0.5)
        try:
            for _ in range(3):
                result = await write(store)
            assert (result.verdict, result.proves) == (Verdict.UNKNOWN, True), "a restart makes no room"
            assert "space" in result.evidence
            assert (await read(store)).verdict is Verdict.OK
        finally:
            await store.close()


async def test_an_etcd_that_calls_itself_corrupt_reads_and_does_not_write(tmp_path: Path) -> None:
    with start_etcd(tmp_path) as etcd:
        store = EtcdGateway([etcd.url], timeout_s=2.0)
        try:
            member = (await store.status()).member
            etcd.call("maintenance/alarm", {"action": "ACTIVATE", "memberID": str(member), "alarm": "CORRUPT"})
            result = await write(store)
            assert (result.verdict, result.proves) == (Verdict.UNKNOWN, True), "a restart mends nothing"
            assert "corrupt cluster" in result.evidence
            assert (await read(store)).verdict is Verdict.OK
            status = await store.status()
            assert alarm_words(status.alarms or ()) == f"alarm CORRUPT on member {member:x}"
            assert cure(status, "etcdctl") == (), "it needs a look first"
        finally:
            await store.close()


def test_the_cure_of_a_full_database_in_its_order() -> None:
    full = Status("3.5.1", 1, 1, 35, 1, 1, 1, None, (Alarm(255, "NOSPACE"),), ())
    assert cure(full, "etcdctl -x") == ("etcdctl -x compact 35", "etcdctl -x defrag", "etcdctl -x alarm disarm")
    assert cure(replace(full, alarms=()), "etcdctl") == cure(replace(full, alarms=None), "etcdctl") == ()


async def test_alarms_and_size(tmp_path: Path) -> None:
    with start_etcd(tmp_path, extra=["--quota-backend-bytes=16777216"]) as etcd:
        store = EtcdGateway([etcd.url], timeout_s=2.0)
        check = EtcdAlarmCheck(spec(quota=16 * 1024**2), tools(store=store))
        try:
            quiet = await check.probe(TARGET)
            assert (quiet.verdict, quiet.evidence.startswith("no alarm, db 0.0 of 16 MB")) == (Verdict.OK, True)
            with contextlib.suppress(StoreRefused):
                for i in range(60):
                    await store.put(f"/fill/{i}", b"x" * 500_000)
            alarm = await check.probe(TARGET)
            assert alarm.verdict is Verdict.FAIL
            assert re.fullmatch(
                r"alarm NOSPACE on member [0-9a-f]+, db 1[5-9]\.\d of 16 MB, writes refused", alarm.evidence
            )
            # the read stays good: only this check can tell
            assert (await read(store)).verdict is Verdict.OK
        finally:
            await store.close()


@pytest.mark.parametrize(
    ("size", "alarms", "verdict"),
    [(14, (), "ok"), (15, (), "fail"), (14, None, "unknown"), (1, (Alarm(255, "CORRUPT"),), "fail")],
)
async def test_a_database_that_is_nearly_full(size: int, alarms: tuple[Alarm, ...] | None, verdict: str) -> None:
    class Answers:
        async def status(self) -> Status:
            return Status("3.5.1", 1, 1, 1, 1, size * 1024**2, 0, None, alarms, ())

    result = await EtcdAlarmCheck(spec(quota=16 * 1024**2), tools(store=Answers())).probe(TARGET)
    assert result.verdict.value == verdict
    assert ("alarm CORRUPT on member ff" in result.evidence) == bool(alarms)


async def test_alarms_that_cannot_be_asked() -> None:
    class Away:
        async def status(self) -> Status:
            raise StoreUnavailable("no answer")

    assert (await EtcdAlarmCheck(spec(quota=1), tools(store=Away())).probe(TARGET)).verdict is Verdict.UNKNOWN


class FakeStore:
    """One key with one value, or an error for everybody."""

    def __init__(self, value: bytes | None = None, error: Exception | None = None) -> None:
        self.value = value
        self.error = error
        self.asked = ""
        self.revision = 1
        self.values = 0

    async def get(self, key: str, *, keys_only: bool = False) -> KeyValue | None:
        self.asked = key
        if self.error:
            raise self.error
        self.values += not keys_only
        value = b"" if keys_only else self.value
        return None if self.value is None or value is None else KeyValue(key, value, 1, self.revision, self.revision)

    async def put(self, key: str, value: bytes) -> int:
        return 1


async def test_a_refusal_is_about_us_and_restarts_no_etcd() -> None:
    assert (await read(FakeStore(error=StoreRefused("user name is empty")))).verdict is Verdict.UNKNOWN
    assert (await read(FakeStore(error=StoreUnavailable("no leader")))).verdict is Verdict.FAIL


async def test_a_write_that_is_not_read_back() -> None:
    for value in (None, b"of before"):
        result = await write(FakeStore(value))
        assert result.verdict is Verdict.FAIL
        assert "did not return what was written" in result.evidence


ADDRESS = "10.0.0.1:1848"
# period times failures of the spec that these tests use
STEADY_S = 3.0
PARAMS = {"address": ADDRESS, "cluster_name": ""}


def member(address: str) -> bytes:
    """An entry of the ring, as protobuf writes the key of a map."""
    return b"\x0a" + bytes((len(address),)) + address.encode() + b"\x12\x02ab"


async def key(store: FakeStore, steady_s: float = STEADY_S) -> Result:
    return await WorkerKeyCheck(spec(**PARAMS), tools(store=store, steady_s=steady_s)).probe(TARGET)


async def ring(store: FakeStore, steady_s: float = STEADY_S) -> Result:
    return await RingCheck(spec(**PARAMS), tools(store=store, steady_s=steady_s)).probe(TARGET)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (b"1700000000000;ready", "ok"),
        (b"1700000000000;ready;host", "ok"),
        (b"1700000000000;recover", "fail"),
        (b"1700000000000;restart", "fail"),
        (b"1700000000000;start", "fail"),
        (b"1700000000000;exiting", "fail"),
        (b"1700000000000;readyish", "fail"),
        (b"ready", "fail"),
        (b"", "fail"),
        (b"\xff\xfe;\xff", "fail"),
        (None, "fail"),
    ],
)
async def test_the_workers_own_key(value: bytes | None, verdict: str) -> None:
    result = await key(FakeStore(value))
    assert result.verdict.value == verdict
    # a store that has just come back proves nothing bad
    young = await key(FakeStore(value), STEADY_S - 0.1)
    assert young.verdict.value == ("ok" if verdict == "ok" else "unknown")
    assert result.evidence in young.evidence


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (member(ADDRESS), "ok"),
        (member("10.0.0.2:1848") + member(ADDRESS) + member("10.0.0.3:1848"), "ok"),
        (member("10.0.0.1:18481"), "fail"),
        (member("110.0.0.1:1848"), "fail"),
        (member(ADDRESS)[:-6], "fail"),
        (b"", "fail"),
        (None, "fail"),
    ],
)
async def test_the_ring(value: bytes | None, verdict: str) -> None:
    assert (await ring(FakeStore(value))).verdict.value == verdict
    young = await ring(FakeStore(value), 0.0)
    assert young.verdict.value == ("ok" if verdict == "ok" else "unknown")


async def test_a_store_that_does_not_answer_says_nothing_about_the_worker() -> None:
    for probe in (key, ring):
        for error in (StoreUnavailable("no answer in time"), StoreRefused("permission denied")):
            result = await probe(FakeStore(error=error))
            assert (result.verdict, str(error) in result.evidence) == (Verdict.UNKNOWN, True)


async def test_the_ring_is_read_whole_when_it_was_written_and_now_and_then() -> None:
    store, clock = FakeStore(member(ADDRESS)), Clock()
    check = RingCheck(spec(**PARAMS), replace(tools(store=store, steady_s=STEADY_S), pulse=clock))

    async def looks(count: int) -> list[str]:
        return [(await check.probe(TARGET)).verdict.value for _ in range(count)]

    assert (await looks(3), store.values) == (["ok"] * 3, 1)
    store.value, store.revision = member("10.0.0.2:1848"), 2
    assert (await looks(3), store.values) == (["fail"] * 3, 2)
    store.value = None
    assert (await looks(1), store.values) == (["fail"], 2)
    store.value, store.revision = member(ADDRESS), 3
    assert (await looks(2), store.values) == (["ok"] * 2, 3)
    # another store that counts as far
    store.value = member("10.0.0.2:1848")
    clock.now += 60
    assert (await looks(2), store.values) == (["fail"] * 2, 4)


class SilentStore:
    async def get(self, key: str, *, keys_only: bool = False) -> KeyValue | None:
        await asyncio.sleep(30)
        return None


async def test_a_silent_store_runs_out_of_time_before_the_probe_does() -> None:
    for kind in (WorkerKeyCheck, RingCheck):
        check = kind(CheckSpec("x", "x", 0.1, 0.2, params=PARAMS), tools(store=SilentStore(), steady_s=STEADY_S))
        # out of the probe's own time would be a failure of the worker
        result = await asyncio.wait_for(check.probe(TARGET), 0.2)
        assert (result.verdict, result.evidence) == (Verdict.UNKNOWN, "the store does not answer in time")


async def test_which_keys_are_asked_for() -> None:
    plain = FakeStore(b"")
    await key(plain)
    assert plain.asked == "/datasystem/cluster/10.0.0.1:1848"
    await ring(plain)
    assert plain.asked == "/datasystem/ring/"
    named = spec(address=ADDRESS, cluster_name="ds2")
    await WorkerKeyCheck(named, tools(store=plain)).probe(TARGET)
    assert plain.asked == "/ds2/datasystem/cluster/10.0.0.1:1848"
    await RingCheck(named, tools(store=plain)).probe(TARGET)
    assert plain.asked == "/ds2/datasystem/ring/"
