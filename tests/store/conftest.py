"""Real etcds and stores for the tests of this room."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.certs import Certs, make_certs
from tests.support.etcd import ETCD_34, ETCD_35, Etcd, start_etcd, start_etcds
from yrnode.store import Event, Store, StoreUnavailable, Watch
from yrnode.store.etcd3_backend import Etcd3Store
from yrnode.store.gateway import EtcdGateway

Connect = Callable[..., Store]

ETCDS = {"3.5.1": ETCD_35, "3.4": ETCD_34}
# Another client of etcd passes the contract by one line here.
BACKENDS: dict[str, Connect] = {"gateway": EtcdGateway, "etcd3": Etcd3Store}
# Shorter than in real life, and still long enough for a busy machine.
FAST = {"timeout_s": 1.5, "watch_idle_s": 0.3}
DEADLINE_S = 30.0
"""Of what is waited for: three members on starved cores may elect one another for ten seconds."""
_number = count()


@pytest.fixture(scope="session", params=ETCDS)
def etcd_binary(request: pytest.FixtureRequest) -> Path:
    binary: Path = ETCDS[request.param]
    if not binary.exists():
        reason = f"etcd {request.param} is not installed: no {binary}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return binary


@pytest.fixture(scope="session")
def etcd(etcd_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """Shared: tests may compact it, but must not stop it."""
    with start_etcd(tmp_path_factory.mktemp("etcd"), etcd_binary) as running:
        yield running


@pytest.fixture
def own_etcd(etcd_binary: Path, tmp_path: Path) -> Iterator[Etcd]:
    """One for this test alone, to kill, freeze and fill."""
    with start_etcd(tmp_path / "etcd", etcd_binary) as running:
        yield running


@pytest.fixture
def own_etcds(etcd_binary: Path, tmp_path: Path) -> Iterator[list[Etcd]]:
    """Three members of one cluster, for this test alone."""
    with start_etcds(tmp_path / "etcd", etcd_binary) as running:
        yield running


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def tls_etcd(etcd_binary: Path, tmp_path: Path, certs: Certs) -> Iterator[Etcd]:
    """One for this test alone, which wants a certificate of everybody."""
    with start_etcd(tmp_path / "etcd", etcd_binary, certs=certs) as running:
        yield running


@pytest_asyncio.fixture(params=BACKENDS)
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes stores of the backend under test, fast ones unless told otherwise, closed at the end."""
    stores: list[Store] = []

    def make(*endpoints: str, **options: object) -> Store:
        stores.append(BACKENDS[request.param](endpoints, **{**FAST, **options}))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
def prefix() -> str:
    return f"/test/{next(_number)}/"


async def until(condition: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
    """Wait for a condition that other tasks bring about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)


async def events_until(watch: Watch, key: str, timeout_s: float = DEADLINE_S) -> list[Event]:
    """All events up to the first one of `key`."""
    got: list[Event] = []
    deadline = time.monotonic() + timeout_s
    while not any(event.key == key for event in got):
        try:
            got += await asyncio.wait_for(anext(watch), deadline - time.monotonic())
        except asyncio.TimeoutError:
            state = f"unbroken since {watch.unbroken_since}, now {time.monotonic()}, error {watch.error}"
            raise AssertionError(f"no event of {key} in {timeout_s} s; {len(got)} others; {state}") from None
    return got


async def put_when_up(store: Store, key: str, value: bytes) -> int:
    """As soon as a store that is starting answers, and once: a put whose answer was lost may have been done."""
    deadline = time.monotonic() + 20
    while True:
        try:
            await store.get(key)
            break
        except StoreUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    return await store.put(key, value)
