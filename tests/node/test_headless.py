"""A head that serves for both nodes, and a headless server that never notices that its head is gone.

Two daemons, real etcd and workers, stand-in engines with the headless traits of vLLM.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.cluster import YrCluster, cluster, cluster_of
from tests.support.keys import forgive
from yrnode.process import table

pytestmark = [pytest.mark.timeout(300)]
HEAD, OTHER = "n0 rank/serve/0", "n1 rank/serve/1"


@pytest.fixture(scope="module")
def pair() -> Iterator[YrCluster]:
    text = cluster_of(2).replace("    port: ", "    mode: headless\n    port: ", 1)
    assert "mode: headless" in text
    with cluster(text, 2) as found:
        found.wait_ready(120)
        yield found


def in_order(c: YrCluster) -> bool:
    return all(n.status()["ready"] for n in c.nodes.values()) and len(c.life()) == 1


@pytest.fixture
def serving(pair: YrCluster) -> YrCluster:
    pair.wait("order", lambda: in_order(pair), 90)
    forgive(pair["n0"])
    return pair


def engine(leader: int) -> int:
    (found,) = [p.pid for p in table.scan() if p.sid == leader and "EngineCor" in p.comm]
    return found


def one_restart(c: YrCluster, pid: int, number: int, culprit: str) -> None:
    before, ((n, _),) = c.pids(), c.life()
    old = [p for name, leader in before.items() if "rank/" in name for p in table.scan() if p.sid == leader]
    began = time.monotonic()
    os.kill(pid, number)
    c.wait("the next life serving", lambda: in_order(c) and c.life() == {(n + 1, "go")}, 90)
    cause = c["n0"].status()["groups"]["serve"]["cause"]
    print(f"\nboth serve again after {time.monotonic() - began:.1f} s: {cause}")
    assert culprit in cause
    after = c.pids()
    assert [name for name in (HEAD, OTHER) if after[name] == before[name]] == []
    assert {k: v for k, v in after.items() if "rank/" not in k} == {
        k: v for k, v in before.items() if "rank/" not in k
    }
    assert [str(p) for p in old if table.alive(p)] == []


def test_the_head_serves_and_the_other_has_no_port(serving: YrCluster) -> None:
    checks = lambda: serving["n1"].component("rank/serve/1")["checks"]  # noqa: E731
    mine = ("process", "processes", "engine", "canary")
    serving.wait("all looked at", lambda: {checks()[name]["verdict"] for name in mine} == {"ok"}, 20)
    assert "EngineCor" in checks()["processes"]["evidence"]
    for node in serving.nodes.values():
        done = node.cli("verify", timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("whose", [HEAD, OTHER])
def test_a_leader_is_killed(serving: YrCluster, whose: str) -> None:
    one_restart(serving, serving.pids()[whose], signal.SIGKILL, whose.split()[1])


@pytest.mark.parametrize("whose", [HEAD, OTHER])
def test_an_engine_is_killed(serving: YrCluster, whose: str) -> None:
    """An idle head would answer 200 until the next request."""
    one_restart(serving, engine(serving.pids()[whose]), signal.SIGKILL, whose.split()[1])


def test_an_engine_behind_the_head_is_frozen(serving: YrCluster) -> None:
    """No request is in flight: seen by its state, and by a completion through the head that does not come."""
    one_restart(serving, engine(serving.pids()[OTHER]), signal.SIGSTOP, "rank/serve/1: hang")


@pytest.mark.slow
def test_a_machine_without_a_port_that_is_gone_is_waited_for(serving: YrCluster) -> None:
    """Nothing of its ranks can be asked from outside: its worker's port stands for them."""
    before, ((n, _),) = serving.pids(), serving.life()
    node = serving["n1"]
    node.kill()
    for name, pid in before.items():
        if name.startswith("n1 "):
            os.killpg(pid, signal.SIGKILL)
    gone = time.monotonic()

    def waits() -> bool:
        s = serving["n0"].status()["groups"]["serve"]
        return s["stage"] == "stop" and any("n1" in w for w in s["waiting_for"])

    serving.wait("n0 says that it waits for n1", waits, 60)
    print(f"\nthe head's node waits for the other after {time.monotonic() - gone:.1f} s")
    node.start()
    serving.wait("one restart", lambda: in_order(serving) and serving.life() == {(n + 1, "go")}, 90)
