"""A store that lost its data, and a worker that lost its place in it, on the real parts."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.beside import beside
from tests.support.node import YrNode, cluster_text, yrnode

pytestmark = pytest.mark.long


@contextlib.contextmanager
def forced(node: YrNode, state: str) -> Iterator[None]:
    """Hold the worker's own key at a state. It puts `ready` back within a second: only haste keeps it."""
    text = node.config.read_text()
    port = int(text.partition("client_port: ")[2].split(",")[0])
    address = node.component("worker")["checks"]["key"]["evidence"].split()[0]

    def hold(over: threading.Event) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        while not over.wait(0.002):
            value = f"{time.time_ns()};{state}"
            body = {
                "key": base64.b64encode(address.encode()).decode(),
                "value": base64.b64encode(value.encode()).decode(),
            }
            connection.request("POST", "/v3/kv/put", json.dumps(body))
            connection.getresponse().read()
        connection.close()

    with beside(hold):
        yield


def wipe_store(node: YrNode) -> None:
    """What a lost disk does: etcd is down, its directory is gone, and it comes back empty."""
    assert node.cli("stop", "etcd", "--yes").returncode == 0
    node.wait("etcd stopped", lambda: node.component("etcd")["state"] == "stopped")
    shutil.rmtree(node.dir / "state/etcd")
    assert node.cli("start", "etcd", "--yes").returncode == 0


def test_an_empty_store_restarts_the_workers_and_no_rank() -> None:
    with yrnode(cluster_text()) as node:
        node.wait_ready()
        before, began = node.pids(), time.monotonic()
        wipe_store(node)
        node.wait("life 2 of the cache", lambda: node.status()["groups"]["cache"]["generation"] == 2, 40)
        node.wait("ready", lambda: (s := node.status())["ready"] and s["components"]["worker"]["generation"] == 2, 60)
        print(f"\nstore emptied: KV works again after {time.monotonic() - began:.1f} s")
        after = node.pids()
        assert after["worker"] != before["worker"]
        assert [after[f"rank/serve/{i}"] for i in (0, 1)] == [before[f"rank/serve/{i}"] for i in (0, 1)]
        assert "lost its data" in node.status()["groups"]["cache"]["cause"]
        assert node.component("worker")["checks"]["ring"]["verdict"] == "ok"
        # once: nothing more happens
        assert node.cli("verify").returncode == 0
        assert node.status()["groups"]["cache"]["generation"] == 2


def test_a_worker_whose_own_key_says_recover_is_restarted_alone() -> None:
    more = "checks: {worker.key: {period: 200ms, failures: 8}}"
    with yrnode(cluster_text(ranks=1, more=more)) as node:
        node.wait_ready()
        before = node.pids()
        with forced(node, "recover"):
            node.wait("the worker restarted", lambda: node.component("worker")["generation"] == 2, 40)
        node.wait("ready", lambda: (s := node.status())["ready"] and s["components"]["worker"]["generation"] == 2, 60)
        after = node.pids()
        assert (after["etcd"], after["rank/serve/0"]) == (before["etcd"], before["rank/serve/0"])
        assert node.status()["groups"]["cache"]["generation"] == 1
        assert "recover" in node.component("worker")["last_failure"]["evidence"]


def test_an_etcd_that_is_away_for_a_while_costs_nothing_else() -> None:
    with yrnode(cluster_text(ranks=1)) as node:
        node.wait_ready()
        before = node.pids()
        for number, limit in ((signal.SIGKILL, 1), (signal.SIGSTOP, 10)):
            pid = node.pids()["etcd"]
            generation = node.component("etcd")["generation"]
            began = time.monotonic()
            os.kill(pid, number)
            node.wait("etcd seen", lambda: node.component("etcd")["state"] != "ready", 20)
            print(f"\netcd {number.name}: seen after {time.monotonic() - began:.2f} s")
            assert time.monotonic() - began < limit
            node.wait("etcd again", lambda g=generation: node.component("etcd")["generation"] > g)
            node.wait_ready()
        after = node.pids()
        assert (after["worker"], after["rank/serve/0"]) == (before["worker"], before["rank/serve/0"])
        assert node.status()["groups"]["cache"]["generation"] == 1
