"""Three daemons, each in a network namespace of its own, and the network between them cut."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.cluster import YrCluster, cluster_of
from tests.support.netns import Switch, address, networked

NODES = 3
LEASE_S = 5.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def net() -> Iterator[tuple[YrCluster, Switch]]:
    with networked(cluster_of(NODES, at=address, first=21000), NODES) as (found, switch):
        found.wait_ready(150)
        yield found, switch


def life(c: YrCluster, *names: str) -> set[tuple[int, str]]:
    groups = [c[name].status()["groups"].get("serve", {}) for name in names or c.nodes]
    return {(g.get("generation", 0), g.get("stage", "")) for g in groups}


def test_a_cut_of_three_seconds_costs_nothing(net: tuple[YrCluster, Switch]) -> None:
    c, switch = net
    c.wait("order", c.in_order, 60)
    before, ((n, stage),) = c.pids(), life(c)
    switch.cut("n1")
    try:
        time.sleep(3)
    finally:
        switch.mend("n1")
    until = time.monotonic() + 2 * LEASE_S + 5
    while time.monotonic() < until:
        assert life(c) == {(n, stage)}
        time.sleep(0.2)
    c.wait("order", c.in_order, 30)
    assert c.pids() == before


def test_a_node_that_is_cut_off_is_waited_for_and_comes_back_to_one_restart(net: tuple[YrCluster, Switch]) -> None:
    c, switch = net
    c.wait("order", c.in_order, 60)
    before, ((n, _),) = c.pids(), life(c)
    switch.cut("n1")
    cut = time.monotonic()
    try:
        c.wait("n1 seen to be away", lambda: c["n0"].status()["peers"]["n1"]["up"] is False, 30)
        print(f"\na node whose network is cut is away for its peers after {time.monotonic() - cut:.1f} s")

        def waits() -> bool:
            s = c["n0"].status()["groups"]["serve"]
            return s["stage"] == "stop" and any("n1" in w for w in s["waiting_for"])

        c.wait("n0 says that it waits for n1", waits, 60)
        print(f"and its group waits for it after {time.monotonic() - cut:.1f} s")
        # the node itself has lost its store, and so stops nothing that serves
        assert life(c, "n1") == {(n, "go")}
        assert c["n1"].status()["store"]["available"] is False
        assert c["n1"].pids() == {k.split()[1]: v for k, v in before.items() if k.startswith("n1 ")}
    finally:
        switch.mend("n1")
    c.wait("one restart", lambda: c.in_order() and life(c) == {(n + 1, "go")}, 120)
    assert c.bumps().count(n + 1) == 1
    after = c.pids()
    kept = [k for k in before if "rank/" not in k]
    assert {k: after[k] for k in kept} == {k: before[k] for k in kept}
    assert [k for k in before if "rank/" in k and after[k] == before[k]] == []
