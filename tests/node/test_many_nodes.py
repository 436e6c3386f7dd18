"""Several daemons act as one: real etcd, real workers, stand-in ranks of one data-parallel group, one on each node.

Three nodes, or as many as YRNODE_TEST_NODES says. The tests share one cluster, and leave it serving.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import yrnode
from tests.support.cluster import YrCluster, cluster, cluster_of
from tests.support.keys import stored
from tests.support.node import YrNode
from tests.support.restore import copy_store, put_back

NODES = int(os.environ.get("YRNODE_TEST_NODES", "3"))
LEASE_S = 5.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def whole() -> Iterator[YrCluster]:
    # longer than any outage here: after it a worker ends itself when a peer reaches etcd before it
    text = cluster_of(NODES).replace("node_dead_timeout: 10s", "node_dead_timeout: 60s")
    with cluster(text, NODES) as found:
        found.wait_ready(60 + 20 * NODES)
        yield found


@pytest.fixture
def serving(whole: YrCluster) -> YrCluster:
    """The cluster in order: what the test before has done is over, and its faults are forgiven."""
    whole.wait("all in order", whole.in_order, 120)
    if whole["n0"].status()["groups"]["serve"]["fails"]:
        n = whole.going()
        assert whole["n0"].cli("restart", "serve", "--yes").returncode == 0
        serves_again(whole, n + 1)
    return whole


def rank(i: int) -> str:
    return f"n{i} rank/serve/{i}"


def serves_again(c: YrCluster, n: int, seconds: float = 90.0) -> None:
    c.wait(f"life {n} serving everywhere", lambda: c.in_order() and c.life() == {(n, "go")}, seconds)


def others_untouched(before: dict[str, int], after: dict[str, int]) -> None:
    kept = {name: pid for name, pid in before.items() if " rank/" not in name}
    assert {name: after.get(name) for name in kept} == kept


def all_ranks_new(before: dict[str, int], after: dict[str, int]) -> None:
    ranks = [name for name in before if " rank/" in name]
    assert [name for name in ranks if after[name] == before[name]] == []


def nothing_happens(c: YrCluster, before: dict[str, int], n: int, seconds: float) -> None:
    """For so long everybody keeps serving the same life with the same processes."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert c.life() <= {(n, "go")}
        time.sleep(0.2)
    assert c.pids() == before


def test_every_node_sees_every_other(serving: YrCluster) -> None:
    for name, node in serving.nodes.items():
        s = node.status()
        assert {peer for peer, p in s["peers"].items() if p["up"]} == set(serving.nodes) - {name}
        assert [p["differs"] for p in s["peers"].values()] == [[]] * (NODES - 1)
        assert s["groups"]["serve"]["phases"] == dict.fromkeys(serving.nodes, "ready")
        assert s["groups"]["cache"]["phases"] == dict.fromkeys(serving.nodes, "ready")


def test_one_dead_rank_restarts_all_of_them_once(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    os.kill(before[rank(1)], signal.SIGKILL)
    began = time.monotonic()
    serves_again(serving, n + 1)
    print(f"\n{NODES} nodes: one rank killed, all serve again after {time.monotonic() - began:.1f} s")
    all_ranks_new(before, serving.pids())
    others_untouched(before, serving.pids())
    assert serving.bumps().count(n + 1) == 1
    causes = {node.status()["groups"]["serve"]["cause"] for node in serving.nodes.values()}
    assert causes == {"rank/serve/1: exited: killed by SIGKILL"}


def test_two_ranks_that_die_together_are_one_restart(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    for i in (0, 2):
        os.kill(before[rank(i)], signal.SIGKILL)
    serves_again(serving, n + 1)
    others_untouched(before, serving.pids())
    assert serving.bumps().count(n + 1) == 1


@pytest.mark.parametrize("stage", ["stop", "go"])
def test_a_daemon_that_dies_in_the_middle_of_a_restart(serving: YrCluster, stage: str) -> None:
    before, n = serving.pids(), serving.going()
    os.kill(before[rank(1)], signal.SIGKILL)
    node = serving["n2"]
    node.wait(f"life {n + 1}, {stage}", lambda: (n + 1, stage) == part(node), 60)
    node.kill()
    node.start()
    serves_again(serving, n + 1)
    others_untouched(before, serving.pids())


def part(node: YrNode) -> tuple[int, str]:
    g = node.status()["groups"].get("serve")
    return (g["generation"], g["stage"]) if g else (0, "")


def test_a_daemon_that_is_away_for_longer_than_its_lease_costs_nothing(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    serving["n1"].kill()
    gone = time.monotonic()
    serving.wait("n1 is seen to be gone", lambda: serving["n0"].status()["peers"]["n1"]["up"] is False, 20)
    print(f"\na dead daemon is seen by its peers after {time.monotonic() - gone:.1f} s")
    time.sleep(max(0.0, gone + 2 * LEASE_S + 4 - time.monotonic()))
    assert {part(serving[n_]) for n_ in serving.nodes if n_ != "n1"} == {(n, "go")}
    serving["n1"].start()
    serving.wait("all in order", serving.in_order, 60)
    nothing_happens(serving, before, n, 3)


def test_a_machine_that_reboots_restarts_the_group_once(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    node = serving["n1"]
    node.kill()
    records = list((node.dir / "n1/run").glob("*.json")) + list((node.dir / "n1/run").glob("*/*.json"))
    for name, pid in before.items():
        if name.startswith("n1 "):
            os.killpg(pid, signal.SIGKILL)
    for path in records:
        data = json.loads(path.read_text())
        if "boot" in data:
            path.write_text(json.dumps({**data, "boot": "another"}))
    node.start()
    serves_again(serving, n + 1)
    mine = [e for e in serving.bumps() if e == n + 1]
    assert len(mine) == 1


def test_etcd_that_is_away_for_longer_than_the_lease_costs_nothing(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    master = serving["n0"]
    assert master.cli("stop", "etcd", "--yes").returncode == 0
    serving.wait("etcd stopped", lambda: master.component("etcd")["state"] == "stopped", 30)
    time.sleep(2 * LEASE_S + 2)
    assert serving["n1"].status()["store"]["available"] is False
    assert serving["n1"].status()["peers"]["n0"]["up"] is None
    assert master.cli("start", "etcd", "--yes").returncode == 0
    serving.wait("all in order", serving.in_order, 90)
    del before["n0 etcd"]
    after = serving.pids()
    del after["n0 etcd"]
    assert after == before
    assert serving.going() == n
    deadline = time.monotonic() + 3 * LEASE_S
    while time.monotonic() < deadline:
        assert serving.life() == {(n, "go")}
        time.sleep(0.5)


def test_etcd_killed_in_the_middle_of_a_restart(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    os.kill(before[rank(2)], signal.SIGKILL)
    os.kill(before["n0 etcd"], signal.SIGKILL)
    serves_again(serving, n + 1)
    workers = {k: v for k, v in before.items() if k.endswith(" worker")}
    assert {k: serving.pids()[k] for k in workers} == workers


def test_etcd_that_comes_back_empty_restarts_the_workers_and_no_rank(serving: YrCluster) -> None:
    before, n = serving.pids("rank"), serving.going()
    cache = serving["n0"].status()["groups"]["cache"]["generation"]
    master = serving["n0"]
    assert master.cli("stop", "etcd", "--yes").returncode == 0
    serving.wait("etcd stopped", lambda: master.component("etcd")["state"] == "stopped", 30)
    shutil.rmtree(serving.dir / "n0/state/etcd")
    began = time.monotonic()
    assert master.cli("start", "etcd", "--yes").returncode == 0
    serving.wait("the cache's next life", lambda: serving.life("cache") == {(cache + 1, "go")}, 90)
    serving.wait("all in order", serving.in_order, 120)
    print(f"\n{NODES} nodes: store emptied, the cache works again after {time.monotonic() - began:.1f} s")
    assert serving.pids("rank") == before
    # numbers go on above the highest that anybody knew
    assert serving.going() == n
    assert master.cli("verify", timeout=60).returncode == 0


def test_a_frozen_etcd_is_restarted_on_its_data_and_nothing_else(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    os.kill(before["n0 etcd"], signal.SIGSTOP)
    serving.wait("etcd's next instance", lambda: serving.pids().get("n0 etcd") not in (None, before["n0 etcd"]), 60)
    serving.wait("all in order", serving.in_order, 60)
    after = serving.pids()
    assert {k: v for k, v in after.items() if k != "n0 etcd"} == {k: v for k, v in before.items() if k != "n0 etcd"}
    assert serving.going() == n


def test_a_store_that_is_put_back_from_an_older_copy(serving: YrCluster, tmp_path: Path) -> None:
    """Engines keep their pids, numbers go on above the highest, and an operator's word survives."""
    copy, n = tmp_path / "copy.db", serving.going()
    copy_store(serving["n0"], copy)
    assert serving["n1"].cli("restart", "serve", "--yes").returncode == 0
    serves_again(serving, n + 1)
    assert serving["n1"].cli("pause", "serve", "--yes").returncode == 0
    before = serving.pids("rank")
    put_back(serving["n0"], copy)
    serving.wait("the store back", lambda: all(x.status()["store"]["available"] for x in serving.nodes.values()), 60)
    serving.wait("the record put back", lambda: stored(serving["n0"], "serve").get("n") == n + 1, 60)
    assert paused(serving["n2"])
    assert serving["n2"].cli("resume", "serve", "--yes").returncode == 0
    serving.wait("all in order", serving.in_order, 120)
    assert serving.pids("rank") == before
    assert serving.going() == n + 1


def paused(node: YrNode) -> bool:
    return node.status()["intents"].get("serve", {}).get("paused") is True


def test_two_versions_that_speak_the_same_protocol_work_together(serving: YrCluster, tmp_path: Path) -> None:
    """An upgrade goes node by node, and costs no restart."""
    before, n = serving.pids(), serving.going()
    shutil.copytree(Path(yrnode.__file__).parent, tmp_path / "yrnode", ignore=shutil.ignore_patterns("__pycache__"))
    first = tmp_path / "yrnode/__init__.py"
    first.write_text(first.read_text().replace(yrnode.__version__, "9.9.9"))
    node = serving["n1"]
    node.kill()
    node.start(env={"PYTHONPATH": str(tmp_path)})
    try:
        serving.wait("all in order", serving.in_order, 60)
        assert node.status()["version"] == "9.9.9"
        serving.wait("the version told", lambda: "version 9.9.9" in str(differs(serving["n0"], "n1")), 20)
        assert serving.pids() == before
        os.kill(before[rank(1)], signal.SIGKILL)
        serves_again(serving, n + 1)
        assert serving.bumps().count(n + 1) == 1
        others_untouched(before, serving.pids())
    finally:
        node.kill()
        node.start()
    serving.wait("all in order", lambda: serving.in_order() and not differs(serving["n0"], "n1"), 60)


def test_a_node_that_is_stopped_is_waited_for_and_named(serving: YrCluster) -> None:
    n = serving.going()
    node = serving["n2"]
    assert node.stop() == 0
    assert node.left() == []

    def named() -> bool:
        s = serving["n0"].status()["groups"]["serve"]
        return s["stage"] == "stop" and any("n2" in w for w in s["waiting_for"])

    serving.wait("n0 says that it waits for n2", named, 60)
    assert "yrnode goes down" in serving["n0"].status()["groups"]["serve"]["cause"]
    node.start()
    serves_again(serving, n + 1)


def test_a_pause_holds_and_the_restart_comes_with_its_end(serving: YrCluster) -> None:
    before, n = serving.pids(), serving.going()
    done = serving["n1"].cli("pause", "-o", "json", "--yes")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["absent"] == []
    os.kill(before[rank(0)], signal.SIGKILL)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert serving.life() == {(n, "go")}
        time.sleep(0.2)
    assert serving["n2"].cli("resume", "--yes").returncode == 0
    serves_again(serving, n + 1)
    assert serving.bumps().count(n + 1) == 1


def test_a_group_is_stopped_and_started_from_any_node(serving: YrCluster) -> None:
    n = serving.going()
    assert serving["n1"].cli("stop", "serve", "--yes", "--why", "new weights").returncode == 0
    stopped = lambda: all(state(c, "rank/") == {"stopped"} for c in serving.nodes.values())  # noqa: E731
    serving.wait("every rank stopped", stopped, 60)
    assert "new weights" in json.dumps(serving["n2"].status()["components"])
    assert serving["n2"].cli("start", "serve", "--yes").returncode == 0
    serving.wait("serving", lambda: serving.in_order() and serving.going() > n, 90)


def state(node: YrNode, kind: str) -> set[str]:
    return {c["state"] for name, c in node.status()["components"].items() if name.startswith(kind)}


def test_a_word_about_another_node(serving: YrCluster) -> None:
    n = serving.going()
    assert serving["n0"].cli("stop", "n2", "--yes").returncode == 0
    held = lambda: serving["n0"].status()["groups"]["serve"]["phases"].get("n2") == "held"  # noqa: E731
    serving.wait("n2 held", held, 60)
    assert state(serving["n2"], "worker") == {"ready"}
    refused = serving["n0"].cli("fence", "n2", "--confirm-off")
    assert refused.returncode == 2
    assert "n2 is up" in refused.stderr
    assert serving["n1"].cli("start", "n2", "--yes").returncode == 0
    serving.wait("serving", lambda: serving.in_order() and serving.going() > n, 90)


def test_what_differs_between_nodes_is_named(serving: YrCluster) -> None:
    """A file that only one node has read yet: it is told, and costs nothing."""
    before, n = serving.pids(), serving.going()
    node = serving["n1"]
    text = node.config.read_text()
    try:
        node.config.write_text(text.replace("served-model-name: demo", "served-model-name: demo, seed: 7"))
        node.kill()
        node.start()
        serving.wait("the difference told", lambda: differs(serving["n0"], "n1"), 60)
        assert differs(serving["n0"], "n1") == ["the cluster file's group serve"]
        assert serving.going() == n
    finally:
        node.config.write_text(text)
        node.kill()
        node.start()
    serving.wait("all in order", lambda: serving.in_order() and not differs(serving["n0"], "n1"), 60)
    assert serving.pids() == before


def differs(node: YrNode, peer: str) -> list[Any]:
    return node.status()["peers"].get(peer, {}).get("differs", [])
