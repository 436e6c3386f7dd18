"""How fast eight nodes follow each other: the real coordination over a real etcd, without processes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bench.result import percentile
from tests.support.agent import GROUP, Agent, AgentProcess, until
from tests.support.etcd import ETCD_35, start_etcd
from yrnode.model.state import Move

NAMES = tuple(f"n{i}" for i in range(8))
LEASE_S = 5.0
BUMPS = 100
pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]


@pytest_asyncio.fixture
async def agents(tmp_path: Path) -> AsyncIterator[list[Agent]]:
    with start_etcd(tmp_path / "etcd", ETCD_35) as etcd:
        found = [Agent(name, NAMES, etcd.url, tmp_path) for name in NAMES]
        for agent in found:
            await agent.start()
        await until("all ready", lambda: all(a.ready for a in found))
        yield found
        for agent in found:
            await agent.close()


@pytest_asyncio.fixture
async def processes(tmp_path: Path) -> AsyncIterator[list[AgentProcess]]:
    # each node has a disk of its own: eight that share one wait for one another's fsync (about 10 ms of the p99)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with (
        start_etcd(tmp_path / "etcd", ETCD_35) as etcd,
        tempfile.TemporaryDirectory(prefix="yra-", dir=memory) as where,
    ):
        found = [AgentProcess(name, NAMES, etcd.url, Path(where)) for name in NAMES]
        try:
            for agent in found:
                await agent.start()
            await until("all ready", lambda: all(a.ready for a in found), 60)
            yield found
        finally:
            await asyncio.gather(*(agent.close() for agent in found))


async def test_a_bump_reaches_all_and_go_starts_all(processes: list[AgentProcess]) -> None:
    stops, goes = [], []
    for i in range(BUMPS):
        n = processes[0].life[0]
        began = time.monotonic()
        processes[i % len(processes)].restart()
        await until("the next life", lambda n=n: all(a.ready and a.life == (n + 1, "go") for a in processes))
        stops.append(max(a.at[Move.STOP] for a in processes) - began)
        goes.append(max(a.at[Move.START] for a in processes) - max(a.at[Move.CLEAN] for a in processes))
    stop50, stop99, go50, go99 = (percentile(of, part) * 1000 for of in (stops, goes) for part in (0.5, 0.99))
    print(
        f"\n8 agents, {BUMPS} bumps: the last one stops after p50 {stop50:.1f} ms, p99 {stop99:.1f} ms; "
        f"all clean to all starting p50 {go50:.1f} ms, p99 {go99:.1f} ms"
    )
    assert stop50 < 50
    assert go50 < 200


async def test_a_dead_node_is_seen_within_its_lease_and_a_second(agents: list[Agent]) -> None:
    *others, dead = agents
    await dead.close(crash=True)
    began = time.monotonic()
    await until("it is seen", lambda: all(dead.name in a.world.absent for a in others), LEASE_S + 3)
    took = time.monotonic() - began
    print(f"\na dead node is seen by its peers after {took:.1f} s")
    assert took < LEASE_S + 1
    # and costs nothing by itself
    assert {a.life for a in others} == {(others[0].world.groups[GROUP].record.n, "go")}
