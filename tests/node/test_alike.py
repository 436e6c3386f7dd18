"""Each node tells what all should have alike, and from when its key comes the others see how its clock stands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent, until
from tests.support.cluster import cluster, cluster_of
from tests.support.etcd import ETCD_35, start_etcd
from yrnode.model.board import Peer
from yrnode.node import shared
from yrnode.node.alike import OFFSETS, Offsets, learn


def test_a_late_key_does_not_put_a_clock_back() -> None:
    offsets = Offsets()
    offsets.note("n1", 100.0, 104.0)
    assert offsets.all() == {"n1": -4.0}
    offsets.note("n1", 200.0, 200.1)
    offsets.note("n2", 300.0, 290.0)
    assert offsets.all() == {"n1": pytest.approx(-0.1), "n2": 10.0}
    # a clock that was set is believed once the old keys are past
    for _ in range(OFFSETS):
        offsets.note("n2", 300.0, 300.0)
    assert offsets.all()["n2"] == 0.0


async def test_facts_are_looked_for_beside_the_loop() -> None:
    go, said = threading.Event(), asyncio.Event()
    found: list[object] = []

    def look() -> dict[str, str]:
        assert go.wait(10)
        return {"CANN": "8.5.0"}

    def say(facts: object) -> None:
        found.append(facts)
        said.set()

    learn(look, say)
    await asyncio.sleep(0)
    assert found == []
    go.set()
    await asyncio.wait_for(said.wait(), 10)
    assert found == [{"CANN": "8.5.0"}]


@contextlib.asynccontextmanager
async def pair(where: Path) -> AsyncIterator[tuple[Agent, Agent]]:
    with start_etcd(where / "etcd", ETCD_35) as etcd:
        agents = [Agent(name, ("n0", "n1"), etcd.url, where) for name in ("n0", "n1")]
        for agent in agents:
            await agent.start()
        try:
            yield agents[0], agents[1]
        finally:
            for agent in agents:
                await agent.close()


async def test_nodes_hear_of_each_others_facts_and_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "REPEAT_S", (0.1, 0.1))
    monkeypatch.setattr(shared, "REPEAT_EACH_S", 0.1)
    async with pair(tmp_path) as (one, two):
        assert two.groups.shared is not None
        two.groups.shared.say_facts({"CANN": "8.5.0"})
        nobody = Peer("")
        await until("the facts", lambda: one.world.board.nodes.get("n1", nobody).facts == {"CANN": "8.5.0"})
        # a key that is put again and again tells the time
        await until("both clocks", lambda: "n1" in one.world.offsets and "n0" in two.world.offsets)
        mark = time.time()
        await until("its own key again", lambda: one.world.board.nodes["n0"].at > mark)
        assert abs(one.world.offsets["n1"]) < 1.0
        assert set(one.world.offsets) == {"n1"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_that_differs_is_named_by_the_others() -> None:
    """Two daemons of one file, of which one gives its ranks another seed."""
    text = cluster_of(2).replace("n1: {address:", 'n1: {env: {PYTHONHASHSEED: "7"}, address:')
    with cluster(text, 2) as found:

        def told() -> dict[str, Any]:
            peer: dict[str, Any] = found["n0"].status().get("peers", {}).get("n1", {})
            return peer

        found.wait("what differs", lambda: told().get("differs"), 120)
        assert told()["differs"] == ["PYTHONHASHSEED of serve 7 instead of 0"]
        found.wait("its clock", lambda: told()["clock_offset_s"] is not None, 60)
        assert abs(told()["clock_offset_s"]) < 1.0
        done = found["n0"].cli("check", "-o", "json")
        checks = [(c["name"], c["verdict"], c["found"]) for c in json.loads(done.stdout)["checks"]]
        assert ("other nodes", "warning", "n1 has PYTHONHASHSEED of serve 7 instead of 0") in checks
        # the file alone shows that the ranks would not find each other's blocks
        assert done.returncode == 1
        assert [v for name, v, _ in checks if name in ("hash seed", "clocks of other nodes")] == ["blocker", "good"]
