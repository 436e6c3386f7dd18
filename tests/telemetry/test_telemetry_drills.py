"""A real Prometheus scrapes real daemons, and alerts are fired by the faults that they are for.

Every `for:` is a second here (`quickened`); what the alerts ask is as it is packaged. How long they wait is for the
rule tests to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cluster import cluster, cluster_of
from tests.support.etcd import post
from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.prometheus import Prometheus, needs_prometheus, prometheus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), needs_prometheus]


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text()) as node:
        node.wait_ready()
        yield node


@pytest.fixture(scope="module")
def watcher(node: YrNode) -> Iterator[Prometheus]:
    """It has found nobody to scrape before it was told of the node, and nothing fires now."""
    with prometheus() as server:
        server.targets({"n0": node.api})
        server.wait_quiet()
        yield server


def etcd_of(node: YrNode) -> str:
    return f"http://127.0.0.1:{node.config.read_text().partition('client_port: ')[2].split(',')[0]}"


def test_a_full_store(node: YrNode, watcher: Prometheus) -> None:
    alarm = {"memberID": "0", "alarm": "NOSPACE"}
    post(etcd_of(node), "maintenance/alarm", {"action": "ACTIVATE", **alarm})
    watcher.wait("YrnodeStoreRefusesWrites", node="n0")
    watcher.wait("YrnodeStoreNearlyFull", component="etcd")
    (raised,) = post(etcd_of(node), "maintenance/alarm", {"action": "GET", **alarm})["alarms"]
    post(etcd_of(node), "maintenance/alarm", {"action": "DEACTIVATE", **raised})
    watcher.wait_quiet()


def test_a_store_that_does_not_answer(node: YrNode, watcher: Prometheus) -> None:
    with ThreadPoolExecutor(1) as pool:
        drill = pool.submit(node.cli, "drill", "store-down", "etcd", timeout=110)
        watcher.wait("YrnodeStoreUnavailable", node="n0")
        assert drill.result().returncode == 0
    watcher.wait_quiet()


def test_a_log_that_was_removed(node: YrNode, watcher: Prometheus) -> None:
    (node.dir / "log/etcd.log").unlink()
    watcher.wait("YrnodeDiskTrouble", node="n0", check="logs")
    assert node.cli("restart", "etcd", "--yes").returncode == 0
    node.wait_ready()
    watcher.wait_quiet()


def test_a_rank_that_hangs_and_then_dies_again_and_again(node: YrNode, watcher: Prometheus) -> None:
    assert node.cli("drill", "hang", "rank/serve/0", timeout=110).returncode == 0
    watcher.wait("YrnodeRankHung", node="n0", component="rank/serve/0", reason="hang")
    # the hang is the first of three restarts that were not asked for; drills use up no budget
    for _ in range(2):
        assert "YrnodeRestartsOften" not in watcher.names()
        assert node.cli("drill", "kill", "rank/serve/0", timeout=110).returncode == 0
    watcher.wait("YrnodeRestartsOften", component="rank/serve/0")
    watcher.wait_quiet("YrnodeRankHung", "YrnodeRestartsOften")


def test_a_daemon_that_is_gone(node: YrNode, watcher: Prometheus) -> None:
    node.kill()
    watcher.wait("YrnodeDown", node="n0")
    node.start()
    node.wait_ready()
    watcher.wait_quiet("YrnodeRankHung", "YrnodeRestartsOften")


def test_what_is_given_up() -> None:
    text = cluster_text().replace("shared_memory: 256MB", "shared_memory: 256MB, args: {foo_bar: 1}")
    with prometheus() as watcher, yrnode(text) as node:
        watcher.targets({"n0": node.api})
        watcher.wait("YrnodeComponentFailed", component="worker", reason="configuration")
        watcher.wait("YrnodeNodeNotReady", node="n0")


def test_a_group_that_is_given_up() -> None:
    with prometheus() as watcher, yrnode(cluster_text(ranks=1, extra_args=", no-such-flag: true")) as node:
        watcher.targets({"n0": node.api})
        watcher.wait("YrnodeGroupFailed", group="serve")


def test_a_node_that_is_absent_and_then_has_another_file() -> None:
    with prometheus() as watcher, cluster(cluster_of(2), 2, start=False) as both:
        both["n0"].start()
        watcher.targets({"n0": both["n0"].api})
        watcher.wait("YrnodeGroupWaitsForNode", group="serve", peer="n1")
        both["n1"].config.write_text(both["n1"].config.read_text().replace("{served-model-name: demo", "{seed: 7"))
        both["n1"].start()
        watcher.wait("YrnodeConfigurationDiffers", peer="n1")
        watcher.wait("YrnodeGroupWaitsForNode", group="serve", peer="n1")
