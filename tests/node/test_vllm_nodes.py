"""Two daemons and one data-parallel group of real vLLM over both: what befalls one rank befalls both.

Slow: see `make test-vllm`.

Externally balanced, each node serves its own rank; headless, the first node serves and the second has no port at all.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support import vllm
from tests.support.cluster import YrCluster, cluster, cluster_of
from tests.support.keys import forgive
from yrnode.process import table

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
NODES = 2
READY_S = 600.0


@pytest.fixture(scope="module", params=["external", "headless"])
def two(request: pytest.FixtureRequest) -> Iterator[YrCluster]:
    mode = f"    mode: {request.param}\n"
    text = vllm.with_vllm(cluster_of(NODES), vllm.lab_env(), model="tiny-moe", more=mode)
    with cluster(text, NODES) as found:
        began = time.monotonic()
        found.wait_ready(READY_S)
        print(f"\n{request.param}: both nodes ready after {time.monotonic() - began:.0f} s")
        yield found


def ranks(c: YrCluster) -> dict[str, int]:
    return c.pids("rank/")


def answer(c: YrCluster) -> None:
    """Every rank that has a port answers; behind a head, several requests so that each engine gets some."""
    for i, node in enumerate(c.nodes.values()):
        if "health" in node.component(f"rank/serve/{i}")["checks"]:
            for _ in range(4):
                assert vllm.ask(vllm.url(node, f"rank/serve/{i}"), 60)["usage"]["completion_tokens"] == 4


def one_restart(c: YrCluster, what: str, node: str, pid: int, number: int) -> None:
    """Signal one process, and see both ranks restart together, once, and nothing else."""
    forgive(c["n0"])
    before, old, n = c.pids(), ranks(c), c.going()
    members = [p for leader in old.values() for p in vllm.session(leader)]
    began = time.monotonic()
    os.kill(pid, number)
    c.wait("a bump", lambda: any(g > n for g, _ in c.life()), 60)
    seen = time.monotonic() - began
    c.wait(
        "both serving",
        lambda: c.life() == {(n + 1, "go")} and all(x.status()["ready"] for x in c.nodes.values()),
        READY_S,
    )
    print(f"\n{what}: seen after {seen:.1f} s, both serve again after {time.monotonic() - began:.0f} s")
    print(f"  {c[node].status()['groups']['serve']['cause']}")
    after = c.pids()
    assert [name for name in old if after[name] == old[name]] == []
    assert {k: after[k] for k in before if k not in old} == {k: before[k] for k in before if k not in old}
    assert [str(p) for p in members if table.alive(p)] == []
    starts = [e for x in c.nodes.values() for e in x.events() if e["what"] == "start" and e["generation"] == n + 1]
    assert sorted(e["target"] for e in starts if e["target"].startswith("rank/")) == ["rank/serve/0", "rank/serve/1"]
    answer(c)


def test_both_answer(two: YrCluster) -> None:
    answer(two)


def test_the_second_nodes_engine_is_killed(two: YrCluster) -> None:
    leader = ranks(two)["n1 rank/serve/1"]
    core = next(p.pid for p in vllm.session(leader) if "VLLM::EngineC" in p.comm)
    one_restart(two, "EngineCore of rank 1 killed", "n1", core, signal.SIGKILL)


def test_somebody_terminates_the_second_nodes_rank(two: YrCluster) -> None:
    one_restart(two, "rank 1 terminated by hand", "n1", ranks(two)["n1 rank/serve/1"], signal.SIGTERM)


def test_the_first_nodes_rank_is_killed(two: YrCluster) -> None:
    """Headless: the second would else stay for ever, and never notice."""
    one_restart(two, "rank 0 killed", "n0", ranks(two)["n0 rank/serve/0"], signal.SIGKILL)


def test_both_stop_in_order(two: YrCluster) -> None:
    for node in two.nodes.values():
        assert node.stop(120) == 0
        assert node.left() == []
