"""`yrnode drain`: out of the router, finish what there is, stop; on one node and on two."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.node import cluster_text, yrnode
from tests.support.routed import D, Node, P, running, split
from tests.support.serving import ask

pytestmark = pytest.mark.long

_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Busy:
    """A request of `tokens` tokens through the router, under way."""

    def __init__(self, node: Node, rank: str, tokens: int, **more: Any) -> None:
        self.answers: list[dict[str, Any]] = []

        def run() -> None:
            with contextlib.suppress(OSError, ValueError):
                self.answers.append(ask(node.router, 200, max_tokens=tokens, **more))

        self._thread = threading.Thread(target=run)
        self._thread.start()
        load = f"http://{node.url(rank)}/load"
        node.wait("a request", lambda: json.load(_OPEN(load, timeout=5))["server_load"], 30)

    def tokens(self) -> int:
        self._thread.join(200)
        return int(self.answers[0]["usage"]["completion_tokens"]) if self.answers else 0


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running(split(", standin-token-time: 0.05, shutdown-timeout: 1")) as found:
        yield found


def test_it_says_what_it_touches_and_asks(node: Node) -> None:
    node.wait_members(p="in", d="in")
    found = node.cli("drain", "--dry-run")
    assert found.returncode == 0
    assert f"drain n0: stops {P}, {D}, when their requests are finished or after 5m" in found.stdout
    assert "out of the router, at once: rank/p/0, rank/d/0" in found.stdout
    assert "yrnode start n0" in found.stdout
    assert node.cli("drain").returncode == 2
    assert node.cli("drain", "--timeout", "soon", "--yes").returncode == 2
    assert node.status()["drain"] is None


def test_a_request_under_way_is_finished_and_then_the_node_stops(node: Node) -> None:
    node.wait_members(p="in", d="in")
    busy, before = Busy(node, D, 100), len(node.events())
    found = node.cli("drain", "--yes", "--why", "upgrade", timeout=200)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "requests to finish: 1" in found.stdout
    # it would have been cut by the stop alone, which waits for a second
    assert busy.tokens() == 100
    assert {node.component(r)["state"] for r in (P, D)} == {"stopped"}
    marks = node.marks("operator-drain", "drained", "stop", since=before)
    assert [m[0] for m in marks if m[1] in ("n0", D)] == ["operator-drain", "drained", "stop"]
    told = next(e for e in node.events()[before:] if e["what"] == "operator-drain")
    assert "upgrade" in told["text"]
    # the cache and the store stay, as with a stop of the node
    assert {node.component(c)["state"] for c in ("etcd", "worker")} == {"ready"}
    assert node.cli("drain", "--yes").stdout.strip() == "drain n0: nothing to do"
    assert node.cli("start", "n0", "--yes").returncode == 0
    node.wait_ready()
    node.wait_members(p="in", d="in")


def test_what_does_not_finish_in_time_is_cut_and_told(node: Node) -> None:
    node.wait_members(p="in", d="in")
    busy = Busy(node, D, 600)
    found = node.cli("drain", "--yes", "--timeout", "2s", "-o", "json", timeout=200)
    assert found.returncode == 1
    answer = json.loads(found.stdout)
    assert answer["finished"] is False
    assert "requests are not finished" in answer["why"]
    assert busy.tokens() < 600
    assert node.cli("start", "n0", "--yes").returncode == 0
    node.wait_ready()
    node.wait_members(p="in", d="in")


def test_a_drain_outlives_the_daemon_and_is_called_off_by_a_start(node: Node) -> None:
    node.wait_members(p="in", d="in")
    stuck = Busy(node, D, 4, prompt=f"{time.time_ns()} [standin:stuck]")
    said: list[str] = []
    asked = threading.Thread(target=lambda: said.append(node.cli("drain", "--yes", timeout=200).stderr))
    asked.start()
    node.wait("a drain", lambda: (node.status().get("drain") or {}).get("unfinished"), 60)
    node.kill()
    node.start()
    node.wait("the drain again", lambda: (node.status().get("drain") or {}).get("unfinished"), 60)
    assert node.cli("start", "n0", "--yes").returncode == 0
    node.wait("no drain", lambda: node.status()["drain"] is None, 30)
    # the proxy cannot take a server back while it has any request: it is set aside until then
    wanted = lambda: [(m["state"], m["wanted"]) for m in node.status()["router"]["members"]]  # noqa: E731
    node.wait("set aside", lambda: wanted() == [("leaving", "in")] * 2, 30)
    assert node.cli("restart", "router", "--yes").returncode == 0
    node.wait_members(p="in", d="in")
    asked.join(200)
    assert said
    assert {node.component(r)["state"] for r in (P, D)} == {"ready"}
    node.close()
    assert stuck.tokens() == 0


def test_without_a_router_it_says_who_must_be_taken_out_by_hand() -> None:
    with yrnode(cluster_text(ranks=1)) as alone:
        alone.wait_ready()
        found = alone.cli("drain", "--yes", timeout=200)
        assert found.returncode == 0, found.stdout + found.stderr
        assert "no router that yrnode can tell" in found.stdout
        assert alone.component("rank/serve/0")["state"] == "stopped"
