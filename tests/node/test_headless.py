"""A head that serves for both nodes, and a headless server that never notices that its head is gone.

Two daemons, real etcd and workers, stand-in engines with the headless traits of vLLM: a group whose engines step
together, as those of a model with experts, and one whose engines are independent.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.cluster import YrCluster, address, cluster, cluster_of, free_everywhere
from tests.support.keys import forgive
from yrnode.process import table

pytestmark = [pytest.mark.timeout(400)]
HEAD, OTHER = "n0 rank/serve/0", "n1 rank/serve/1"
BOTH = ("serve", "dense")
GROUPS = """
  serve:
    mode: headless
    ranks: {{n0: 1, n1: 1}}
    port: {0}
    model: demo
    args: {{served-model-name: demo}}
    kv_connector: {{ascend_store: {{}}}}
  dense:
    mode: headless
    ranks: {{n0: 1, n1: 1}}
    devices: {{n0: [1], n1: [1]}}
    port: {1}
    model: demo
    args: {{served-model-name: demo, standin-dense: true}}"""
CHECKS = """
checks:
  rank.canary: {period: 300s, timeout: 3s}
  rank.cache: {period: 300s}
  rank.progress: {stall_timeout: 15s}"""


@pytest.fixture(scope="module")
def first() -> int:
    return free_everywhere(2, 6)


@pytest.fixture(scope="module")
def pair(first: int) -> Iterator[YrCluster]:
    text = cluster_of(2, groups=GROUPS.format(first + 4, first + 5), more=CHECKS, first=first)
    with cluster(text, 2) as found:
        found.wait_ready(120)
        yield found


def at_rest(c: YrCluster) -> bool:
    """Nobody has asked an engine for a second: engines step on for a moment, and see another's death then."""
    checks = [
        node.component(f"rank/{group}/{n}")["checks"] for n, node in enumerate(c.nodes.values()) for group in BOTH
    ]
    said = [k[name]["evidence"] for k in checks for name in ("canary", "cache") if name in k]
    ages = [re.search(r"(\d+) s ago", text) for text in said]
    return all(age and int(age[1]) >= 1 for age in ages)


@pytest.fixture
def serving(pair: YrCluster) -> YrCluster:
    pair.wait("order", lambda: pair.in_order(*BOTH), 90)
    pair.wait("rest", lambda: at_rest(pair), 30)
    for group in ("serve", "dense"):
        forgive(pair["n0"], group)
    return pair


def engine(leader: int) -> int:
    (found,) = [p.pid for p in table.scan() if p.sid == leader and "EngineCor" in p.comm]
    return found


def one_restart(c: YrCluster, fault: Callable[[], object], culprit: str, group: str = "serve") -> None:
    before, ((n, _),) = c.pids(), c.life(group)
    ranks = [name for name in before if f"rank/{group}/" in name]
    old = [p for name in ranks for p in table.scan() if p.sid == before[name]]
    began = time.monotonic()
    fault()
    c.wait("the group's stop", lambda: (n, "go") not in c.life(group), 60)
    seen = time.monotonic()
    c.wait("the next life serving", lambda: c.in_order(*BOTH) and c.life(group) == {(n + 1, "go")}, 90)
    cause = c["n0"].status()["groups"][group]["cause"]
    print(f"\nseen after {seen - began:.1f} s, both serve again after {time.monotonic() - began:.1f} s: {cause}")
    assert culprit in cause
    after = c.pids()
    assert [name for name in ranks if after[name] == before[name]] == []
    assert {k: v for k, v in after.items() if k not in ranks} == {k: v for k, v in before.items() if k not in ranks}
    assert [str(p) for p in old if table.alive(p)] == []


def test_the_head_serves_and_the_other_has_no_port(serving: YrCluster) -> None:
    checks = lambda: serving["n1"].component("rank/serve/1")["checks"]  # noqa: E731
    mine = ("process", "processes", "engine", "canary")
    serving.wait("all looked at", lambda: {checks()[name]["verdict"] for name in mine} == {"ok"}, 20)
    assert "EngineCor" in checks()["processes"]["evidence"]
    assert checks()["canary"]["evidence"].startswith("engine 1: completion: 1 token")
    heads = serving["n0"].component("rank/serve/0")["checks"]["canary"]["evidence"]
    assert heads.startswith("2 engines: completion: 1 token")
    for node in serving.nodes.values():
        done = node.cli("verify", timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    serving.wait("rest", lambda: at_rest(serving), 30)


@pytest.mark.parametrize("whose", [HEAD, OTHER])
def test_a_leader_is_killed(serving: YrCluster, whose: str) -> None:
    pid = serving.pids()[whose]
    one_restart(serving, lambda: os.kill(pid, signal.SIGKILL), whose.split()[1])


@pytest.mark.parametrize("whose", [HEAD, OTHER])
def test_an_engine_is_killed(serving: YrCluster, whose: str) -> None:
    """An idle head would answer 200 until the next request."""
    pid = engine(serving.pids()[whose])
    one_restart(serving, lambda: os.kill(pid, signal.SIGKILL), whose.split()[1])


def test_a_headless_server_is_frozen(serving: YrCluster) -> None:
    """No request is in flight: seen by its state, and by a completion through the head that does not come."""
    pid = serving.pids()[OTHER]
    one_restart(serving, lambda: os.killpg(pid, signal.SIGSTOP), "rank/serve/1: the engine hangs: ")


def test_an_independent_engine_behind_the_head_is_frozen(serving: YrCluster) -> None:
    """The head's own engine answers all the time."""
    pid = engine(serving.pids()["n1 rank/dense/1"])
    one_restart(serving, lambda: os.kill(pid, signal.SIGSTOP), "rank/dense/1: the engine hangs: ", "dense")


@contextlib.contextmanager
def request(port: int, rank: int) -> Iterator[None]:
    """A completion that waits for an engine."""
    connection = http.client.HTTPConnection(address(0), port, timeout=5)
    try:
        body = json.dumps({"model": "demo", "prompt": "hello", "max_tokens": 1})
        headers = {"X-data-parallel-rank": str(rank), "Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", body, headers)
        yield
    finally:
        connection.close()


@pytest.mark.slow
def test_an_independent_engine_behind_the_head_spins(serving: YrCluster, first: int) -> None:
    """No state shows it. Only its head knows that it was asked for something, and that nothing of it moves."""
    pid = engine(serving.pids()["n1 rank/dense/1"])
    os.kill(pid, signal.SIGUSR2)
    with request(first + 5, 1):
        one_restart(serving, lambda: None, "engine 1: ", "dense")


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
    serving.wait("one restart", lambda: serving.in_order(*BOTH) and serving.life() == {(n + 1, "go")}, 90)
