"""Prefill and decode that restart together: two daemons, a group on each, real etcd and workers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.cluster import YrCluster, cluster, cluster_of
from tests.support.keys import forgive, stored

pytestmark = pytest.mark.timeout(240)
GROUPS = """
  prefill:
    ranks: {n0: 1}
    port: 6600
    model: demo
    args: {served-model-name: demo}
    restart_with: [decode]
  decode:
    ranks: {n1: 1}
    port: 6600
    model: demo
    args: {served-model-name: demo}
  apart:
    ranks: {n1: 1}
    port: 6700
    model: demo
    devices: {n1: [7]}
    args: {served-model-name: demo}"""


@pytest.fixture(scope="module")
def pair() -> Iterator[YrCluster]:
    with cluster(cluster_of(2, groups=GROUPS), 2) as found:
        found.wait_ready(120)
        yield found


def lives(c: YrCluster) -> dict[str, int]:
    """What the store says, whoever is a member."""
    return {name: stored(c["n0"], name)["n"] for name in ("prefill", "decode", "apart", "cache")}


def in_order(c: YrCluster) -> bool:
    stages = {stored(c["n0"], name)["stage"] for name in ("prefill", "decode", "apart", "cache")}
    return stages == {"go"} and all(n.status()["ready"] for n in c.nodes.values())


@pytest.fixture
def serving(pair: YrCluster) -> YrCluster:
    pair.wait("order", lambda: in_order(pair), 60)
    return pair


@pytest.mark.parametrize(("node", "group", "other"), [("n0", "prefill", "decode"), ("n1", "decode", "prefill")])
def test_a_fault_of_one_restarts_both_once(serving: YrCluster, node: str, group: str, other: str) -> None:
    """Whichever of them it is, though no node has ranks of both."""
    before, pids = lives(serving), serving.pids()
    os.kill(pids[f"{node} rank/{group}/0"], signal.SIGKILL)
    serving.wait("both again", lambda: lives(serving)[other] > before[other] and in_order(serving), 60)
    assert lives(serving) == {**before, group: before[group] + 1, other: before[other] + 1}
    after = serving.pids()
    changed = {name for name in pids if after[name] != pids[name]}
    assert changed == {"n0 rank/prefill/0", "n1 rank/decode/0"}
    records = {name: stored(serving["n0"], name) for name in (group, other)}
    assert (records[group]["fails"], records[other]["cause"]["reason"]) == (1, "coupled")
    assert records[other]["cause"]["text"] == f"coupled: {group}"
    assert records[other]["fails"] == 0
    forgive(serving[node], group)


def test_an_operator_is_told_what_restarts_with_it(serving: YrCluster) -> None:
    before = lives(serving)
    done = serving["n1"].cli("restart", "decode", "--yes")
    assert done.returncode == 0
    assert "restarts with it: prefill" in done.stdout
    serving.wait("both again", lambda: lives(serving)["prefill"] > before["prefill"] and in_order(serving), 60)
    assert lives(serving) == {**before, "prefill": before["prefill"] + 1, "decode": before["decode"] + 1}


def test_one_that_an_operator_has_stopped_stays_so(serving: YrCluster) -> None:
    assert serving["n1"].cli("stop", "decode", "--yes").returncode == 0
    stopped = lambda: serving["n1"].component("rank/decode/0").get("state") == "stopped"  # noqa: E731
    serving.wait("decode stopped", stopped, 60)
    serving.wait("prefill serves", lambda: stored(serving["n0"], "prefill")["stage"] == "go", 60)
    serving["n0"].wait("prefill ready", lambda: serving["n0"].status()["ready"], 60)
    before = lives(serving)
    os.kill(serving.pids()["n0 rank/prefill/0"], signal.SIGKILL)
    serving.wait("prefill's next life", lambda: stored(serving["n0"], "prefill")["n"] == before["prefill"] + 1, 60)
    serving["n0"].wait("prefill ready", lambda: serving["n0"].status()["ready"], 60)
    assert lives(serving) == {**before, "prefill": before["prefill"] + 1}
    assert stopped()
    assert serving["n1"].cli("start", "decode", "--yes", "-o", "json").returncode == 0
    serving.wait("order", lambda: in_order(serving), 60)
    assert json.loads(serving["n1"].cli("status", "-o", "json").stdout)["ready"]
