"""A real Prometheus scrapes real daemons, and alerts are fired by the faults that they are for.

Every `for:` is a second here (`quickened`); what the alerts ask is as it is packaged. How long they wait is for the
rule tests to show.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.node.test_cache_group import forced
from tests.support.beside import beside
from tests.support.cluster import cluster, cluster_of
from tests.support.etcd import post
from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.prometheus import Prometheus, needs_prometheus, prometheus
from tests.support.serving import ask, core, url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), needs_prometheus]


COMPRESSED = (
    "import runpy, sys; import yrnode.policy.hits as hits; hits.COLD_S = 5.0; "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""A worker counts as long up after 5 s instead of 10 minutes."""


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(), start=False) as node:
        node.start(prefix=(sys.executable, "-c", COMPRESSED))
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
        drill = pool.submit(node.cli, "drill", "store-down", "etcd", "--yes", timeout=110)
        watcher.wait("YrnodeStoreUnavailable", node="n0")
        assert drill.result().returncode == 0
    watcher.wait_quiet()


def test_a_log_that_was_removed(node: YrNode, watcher: Prometheus) -> None:
    (node.dir / "log/etcd.log").unlink()
    watcher.wait("YrnodeDiskTrouble", node="n0", check="logs")
    assert node.cli("restart", "etcd", "--yes").returncode == 0
    node.wait_ready()
    watcher.wait_quiet()


def test_a_directory_that_is_in_the_way(node: YrNode, watcher: Prometheus) -> None:
    assert node.cli("stop", "serve", "--yes").returncode == 0
    node.wait("stopped", lambda: node.component("rank/serve/0")["state"] == "stopped")
    own = node.home / "rank-serve-0"
    own.rename(own.with_name("aside"))
    own.write_text("a file where its directory was")
    assert node.cli("start", "serve", "--yes").returncode == 0
    watcher.wait("YrnodeComponentHeld", node="n0", component="rank/serve/0", state="cleaning", reason="residue")
    own.unlink()
    node.wait_ready()
    watcher.wait_quiet()


def test_a_worker_that_is_not_in_the_ring(node: YrNode, watcher: Prometheus) -> None:
    before = node.component("worker")["pid"]
    # its word is taken only of a store that has answered for 30 s
    with forced(node, "recover"):
        watcher.wait("YrnodeWorkerOutOfRing", 90, node="n0", component="worker", check="key")
    watcher.wait_quiet()
    assert node.component("worker")["pid"] == before


def test_a_cache_that_never_has_what_is_asked(node: YrNode, watcher: Prometheus) -> None:
    with asking(node, shared=False):
        watcher.wait("YrnodeCacheCold", 90, node="n0", component="rank/serve/0")
    with asking(node, shared=True):
        watcher.wait_quiet(seconds=90)


def test_a_cache_that_is_away(node: YrNode, watcher: Prometheus) -> None:
    assert node.cli("stop", "worker", "--yes").returncode == 0
    with asking(node, shared=False):
        watcher.wait("YrnodeCacheOff", 90, node="n0", component="rank/serve/0", meaning="worker-away")
    assert node.cli("start", "worker", "--yes").returncode == 0
    node.wait_ready()
    with asking(node, shared=True):
        watcher.wait_quiet(seconds=90)


def test_a_check_that_fails_and_restarts_nothing(node: YrNode, watcher: Prometheus) -> None:
    before = node.pids()
    # it spins: for three minutes that may be a long prefill
    os.kill(core(node, "rank/serve/0"), signal.SIGUSR2)
    with asking(node, shared=False):
        watcher.wait("YrnodeCheckFails", 90, node="n0", component="rank/serve/0", check="progress")
    assert node.pids() == before
    assert node.cli("restart", "serve", "--yes").returncode == 0
    node.wait_ready()
    watcher.wait_quiet(seconds=90)


@contextlib.contextmanager
def asking(node: YrNode, *, shared: bool) -> Iterator[None]:
    """Requests to rank 0, one after the other: alike ones, or each of them new, which no cache can have."""
    base = url(node, "rank/serve/0")

    def ask_on(over: threading.Event) -> None:
        while not over.wait(0.2):
            text = ("once upon a time " if shared else f"{time.time_ns()} {os.urandom(300).hex()} ") * 40
            with contextlib.suppress(OSError):
                ask(base, 5, prompt=text)

    with beside(ask_on, 30):
        yield


def test_a_rank_that_hangs_and_then_dies_again_and_again(node: YrNode, watcher: Prometheus) -> None:
    assert node.cli("drill", "hang", "rank/serve/0", "--yes", timeout=110).returncode == 0
    watcher.wait("YrnodeRankHung", node="n0", component="rank/serve/0", reason="hang")
    # the hang is the first of three restarts that were not asked for; drills use up no budget
    for _ in range(2):
        assert "YrnodeRestartsOften" not in watcher.names()
        assert node.cli("drill", "kill", "rank/serve/0", "--yes", timeout=110).returncode == 0
    watcher.wait("YrnodeRestartsOften", component="rank/serve/0")
    watcher.wait_quiet("YrnodeRankHung", "YrnodeRestartsOften")


def test_a_daemon_that_is_gone(node: YrNode, watcher: Prometheus) -> None:
    node.kill()
    watcher.wait("YrnodeDown", node="n0")
    node.start()
    node.wait_ready()
    watcher.wait_quiet("YrnodeRankHung", "YrnodeRestartsOften")


def test_a_daemon_that_is_starved() -> None:
    """It gets a few milliseconds of each second: it goes on answering, and its rounds are late."""
    with prometheus(scrape="15s") as watcher, yrnode(cluster_text(ranks=1)) as node:
        node.wait_ready()
        with starved(node.process.pid, run_s=0.02, stop_s=1.0):
            watcher.targets({"n0": node.api})
            watcher.wait("YrnodeLoopSlow", 200, node="n0")
        assert node.status()["ready"]


@contextlib.contextmanager
def starved(pid: int, run_s: float, stop_s: float) -> Iterator[None]:

    def starve(over: threading.Event) -> None:
        while not over.wait(run_s):
            os.kill(pid, signal.SIGSTOP)
            over.wait(stop_s)
            os.kill(pid, signal.SIGCONT)

    with beside(starve):
        yield


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
