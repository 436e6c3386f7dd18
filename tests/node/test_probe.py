"""Where the guides' probes are wrong: a daemon with a router, one prefill rank and two decode ranks."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.cluster import cluster_of, free_everywhere
from tests.support.node import YrNode
from tests.support.routed import STANDIN, Node
from tests.support.serving import check, core

LAST = "rank/d/1"
PROBE_S = 5.0
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def text() -> str:
    first = free_everywhere(1, 10)
    # without experts the ranks do not wait for each other: one that stands is seen by nobody else
    args = "{served-model-name: demo, reasoning-parser: glm45, standin-dense: true}"
    rank = f"kv_connector: {{ascend_store: {{}}}}, model: demo, args: {args}"
    groups = f"\n  p: {{{rank}, ranks: {{n0: 1}}, port: {first + 5}}}"
    groups += f"\n  d: {{{rank}, ranks: {{n0: 2}}, port: {first + 6}, devices: {{n0: [1, 2]}}}}"
    router = f"router: {{node: n0, script: {STANDIN}, port: {first + 8}, prefill: p, decode: d}}"
    return cluster_of(1, groups=groups, more=router, first=first)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    found = Node(text(), "n0")
    try:
        found.start()
        found.wait_ready()
        found.wait("three members", lambda: list(found.members().values()) == ["in"] * 3, 30)
        yield found
    finally:
        found.close()


def guides_probe(node: Node) -> dict[str, object]:
    """The request of vllm_probe.py, through the router."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{node.router}/v1/chat/completions", json.dumps(body).encode(), headers)
    with _OPEN(request, timeout=10) as answer:
        assert answer.status == 200
        return dict(json.load(answer)["choices"][0]["message"])


def probe(node: YrNode, what: str) -> tuple[int, str]:
    began = time.monotonic()
    done = node.cli("probe", what)
    assert time.monotonic() - began < PROBE_S, "a prober waits for nobody"
    return done.returncode, done.stdout.strip()


def test_an_answer_without_content_is_one(node: Node) -> None:
    assert not guides_probe(node)["content"], "the guides' script calls this a failure"
    assert probe(node, "ready") == (0, "ready")
    assert probe(node, "live") == (0, "live")
    done = node.cli("verify", "-o", "json", timeout=90)
    found = json.loads(done.stdout)
    assert (done.returncode, found["router"], found["completion"]) == (0, "ok", True)
    assert found["hit_rates"]["external"] > 0


def test_a_liveness_file_that_is_read_while_it_is_written(node: Node) -> None:
    """The worker writes it in place, ten times a second: a reader may find it empty."""
    file = node.home / "worker" / "liveness"

    def torn() -> bool:
        # as often as it takes for a while: it is empty in about one of 300 reads
        assert check(node, "liveness", "worker")[0] == "ok"
        return any("success" not in file.read_text() for _ in range(2000))

    before = node.pids()
    node.wait("an empty read, which the guides' script calls a failure", torn, 60)
    assert probe(node, "live") == (0, "live")
    assert probe(node, "ready") == (0, "ready")
    assert node.pids() == before


def test_the_caches_are_told_of(node: Node) -> None:
    """What verify has sent is in the daemon's own count."""
    found = node.wait(
        "counts",
        lambda: (c := json.loads(node.get("/cache")[1])["ranks"])[LAST]["tokens"]["total"]["local_queries"] and c,
        30,
    )
    assert list(found) == ["rank/d/0", LAST, "rank/p/0"]
    done = node.cli("cache", "--window", "5m", "-o", "json")
    rows = json.loads(done.stdout)["ranks"]
    assert done.returncode == 0
    assert all(0 <= row["eff_total"] <= 1 for row in rows.values())
    assert sum(row["tokens"]["total"]["external_hits"] for row in rows.values()) > 0
    assert 'yrnode_cache_hit_ratio{component="rank/d/1"' in node.get("/metrics")[1]


def test_a_rank_that_the_router_does_not_pick_and_a_live_node_that_heals(node: Node) -> None:
    os.kill(core(node, LAST), signal.SIGSTOP)
    guides_probe(node)
    began = time.monotonic()
    _, line = node.wait("a rank that does not serve", lambda: (p := probe(node, "ready"))[0] and p, 60)
    assert time.monotonic() - began < 60, "the guides' script would wait for 1200 s"
    assert "rank/d/" in line

    def healed() -> bool:
        assert probe(node, "live") == (0, "live"), "who heals is alive"
        return probe(node, "ready")[0] == 0

    node.wait("the healed rank", healed, 120)
    assert [e["target"] for e in node.events() if e["what"] == "bump" and e["generation"] > 1] == ["d"]
