"""A router on one node, prefill there and decode on another: what is known of the other node, and what is not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import YrCluster, cluster_of, free_everywhere
from tests.support.routed import PROXY, PYTHON, D, P
from tests.support.serving import ask
from yrnode.process import table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def text() -> str:
    first = free_everywhere(2, 8)
    rank = "kv_connector: {ascend_store: {}}, model: demo, args: {served-model-name: demo"
    groups = f"\n  p: {{ranks: {{n0: 1}}, {rank}}}, port: {first + 5}}}"
    groups += f"\n  d: {{ranks: {{n1: 1}}, {rank}, standin-token-time: 0.05}}, port: {first + 6}}}"
    router = f"router: {{node: n0, script: {PROXY}, port: {first + 7}, prefill: p, decode: d}}"
    return cluster_of(2, groups=groups, more=router, first=first).replace("bin: {", f"bin: {{python: {PYTHON}, ")


@pytest.fixture(scope="module")
def pair() -> Iterator[YrCluster]:
    found = YrCluster(text(), ["n0", "n1"])
    try:
        found.start()
        found.wait_ready(200)
        yield found
    finally:
        found.close()


def members(pair: YrCluster) -> dict[str, tuple[str, str]]:
    """By rank: what it is and what it should be."""
    router: dict[str, Any] = pair["n0"].status().get("router") or {"members": []}
    return {m["rank"]: (m["state"], m["wanted"]) for m in router["members"]}


def both_in(pair: YrCluster) -> None:
    pair.wait("both in", lambda: members(pair) == {P: ("in", "in"), D: ("in", "in")}, 100)


def url(pair: YrCluster) -> str:
    return str(pair["n0"].status()["router"]["url"])


def test_the_routers_node_follows_a_group_that_it_has_no_rank_of(pair: YrCluster) -> None:
    both_in(pair)
    assert "d" not in pair["n0"].status()["groups"]
    assert pair["n1"].status()["router"] is None
    assert ask(url(pair), 20)["usage"]["completion_tokens"] == 4
    before = len(pair["n1"].events())
    assert pair["n1"].cli("restart", "d", "--yes").returncode == 0
    pair.wait("out", lambda: members(pair)[D][0] == "out")
    left = [e for e in pair["n1"].events()[before:] if e["what"] == "left-router"]
    assert [e["text"].partition(",")[0] for e in left] == ["out of the router"]
    both_in(pair)
    assert ask(url(pair), 20)["usage"]["completion_tokens"] == 4


def test_a_daemon_that_is_gone_takes_nobody_out(pair: YrCluster) -> None:
    both_in(pair)
    pair["n1"].kill()
    pair.wait("unknown", lambda: members(pair)[D] == ("in", "unknown"), 60)
    assert ask(url(pair), 20)["usage"]["completion_tokens"] == 4
    pair["n1"].start()
    both_in(pair)


def test_a_node_that_is_gone_with_its_ranks_is_out(pair: YrCluster) -> None:
    both_in(pair)
    home = str(pair["n1"].home)
    pair["n1"].kill()
    for process in table.scan():
        if process.state not in "ZX" and table.marks(process.pid)[1] == home:
            os.kill(process.pid, signal.SIGKILL)
    pair.wait("out", lambda: members(pair)[D] == ("out", "out"), 60)
    told = [e for e in pair["n0"].events() if (e["what"], e["target"]) == ("member-out", D)]
    assert "nothing listens there" in told[-1]["text"]
    pair["n1"].start()
    both_in(pair)


def test_a_drain_of_the_other_node(pair: YrCluster) -> None:
    both_in(pair)
    found = pair["n1"].cli("drain", "--yes", timeout=100)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"out of the router, at once: {D}" in found.stdout
    assert members(pair)[D] == ("out", "out")
    assert pair["n0"].component(P)["state"] == "ready"
    assert pair["n0"].cli("drain", "--dry-run").stdout.startswith(f"drain n0: stops {P}")
    assert pair["n1"].cli("start", "n1", "--yes").returncode == 0
    both_in(pair)
