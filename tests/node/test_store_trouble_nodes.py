"""Several daemons behind one broken way to the store: whoever serves goes on, and a restart that is due comes once.

The store is one that somebody else runs, so that daemons and workers reach it through the same proxy. Three nodes, or
as many as YRNODE_TEST_NODES says; the tests share one cluster, and leave it serving.

A worker ends itself after an outage of `node_dead_timeout` when a peer is back before it, so that is longer here than
any of them. One may never say `ready` again (seen once in 14 outages): its node then restarts it alone.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.test_gateway import MAY_HEAL
from tests.support.cluster import YrCluster, cluster, cluster_of
from tests.support.etcd import start_etcd
from tests.support.proxy import Switched, http_answer

NODES = int(os.environ.get("YRNODE_TEST_NODES", "3"))
LEASE_S = 5.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Lab:
    def __init__(self, c: YrCluster, proxy: Switched) -> None:
        self.c, self.proxy = c, proxy

    def away(self) -> None:
        self.proxy.cut()
        self.c.wait("the outage seen by all", lambda: not any(self.stores()), 30)

    def stores(self) -> list[bool]:
        return [n.status()["store"]["available"] for n in self.c.nodes.values()]

    def in_order(self) -> bool:
        checks = [v for n in self.c.nodes.values() for v in n.component("worker")["checks"].values()]
        return all(self.stores()) and self.c.in_order() and all(c["verdict"] == "ok" for c in checks)


@pytest.fixture(scope="module")
def whole() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="yrs-", dir="/tmp") as directory, start_etcd(Path(directory)) as etcd:
        proxy = Switched(etcd.url)
        try:
            head, _, rest = cluster_of(NODES).partition("etcd: {")
            text = f"{head}etcd: {{external: ['{proxy.url}']}}{rest[rest.index(chr(10)) :]}"
            text = text.replace("node_dead_timeout: 10s", "node_dead_timeout: 60s")
            with cluster(text, NODES) as c:
                c.wait_ready(60 + 20 * NODES)
                yield Lab(c, proxy)
        finally:
            proxy.close()


@pytest.fixture
def lab(whole: Lab) -> Lab:
    whole.c.wait("all in order", whole.in_order, 120)
    if whole.c["n0"].status()["groups"]["serve"]["fails"]:
        n = whole.c.going()
        assert whole.c["n0"].cli("restart", "serve", "--yes").returncode == 0
        whole.c.wait("a life of its own", lambda: whole.in_order() and whole.c.life() == {(n + 1, "go")}, 120)
    return whole


TROUBLES: dict[str, tuple[Callable[[Switched], None], Callable[[Switched], None], float]] = {
    **{f"cut {s} s": (Switched.cut, Switched.open, s) for s in (2, 4, 6, 12, 30)},
    "late": (lambda p: p.delay(2.0), lambda p: p.delay(0), 7),
    "half-open": (Switched.hold, Switched.release, 7),
    **{
        answer: (lambda p, a=answer: p.say(http_answer(*MAY_HEAL[a])), lambda p: (p.cut(), p.open()), 7)
        for answer in ("500 text", "503 html", "500 unknown code")
    },
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_nothing_restarts(lab: Lab, trouble: str) -> None:
    begin, end, seconds = TROUBLES[trouble]
    before, n, cache = lab.c.pids(), lab.c.going(), lab.c.going("cache")
    begin(lab.proxy)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert lab.c.pids("rank") == {k: v for k, v in before.items() if " rank/" in k}
        time.sleep(0.2)
    end(lab.proxy)
    lab.c.wait("all in order", lab.in_order, 100)
    until = time.monotonic() + LEASE_S + 2
    while time.monotonic() < until:
        assert lab.c.life() == {(n, "go")}
        time.sleep(0.2)
    assert (lab.c.going(), lab.c.going("cache")) == (n, cache)
    kept(lab, before, lab.c.pids())


def kept(lab: Lab, before: dict[str, int], after: dict[str, int]) -> None:
    """Nothing but workers that did not heal is another process, and their nodes say so."""
    assert after.keys() == before.keys()
    for name in (k for k in before if after[k] != before[k]):
        node, _, component = name.partition(" ")
        assert component == "worker"
        stop = [e for e in lab.c[node].events() if (e["target"], e["what"]) == ("worker", "stop")][-1]
        assert (stop["text"], "says 'recover'" in stop["evidence"]) == ("check key fails", True)


def test_a_rank_that_dies_meanwhile_is_one_restart_afterwards(lab: Lab) -> None:
    before, n = lab.c.pids(), lab.c.going()
    lab.away()
    os.kill(before["n1 rank/serve/1"], signal.SIGKILL)
    lab.c.wait(
        "it waits", lambda: lab.c["n1"].component("rank/serve/1")["waiting_for"] == ["store (unavailable)"], 30
    )
    others = {k: v for k, v in before.items() if k != "n1 rank/serve/1"}
    until = time.monotonic() + LEASE_S + 1
    while time.monotonic() < until:
        assert {k: v for k, v in lab.c.pids().items() if k in others} == others
        time.sleep(0.2)
    lab.proxy.open()
    restarted_once(lab, before, n)


@pytest.mark.parametrize("stage", ["stop", "go"])
def test_an_outage_in_the_middle_of_a_restart(lab: Lab, stage: str) -> None:
    before, n = lab.c.pids(), lab.c.going()
    os.kill(before["n1 rank/serve/1"], signal.SIGKILL)
    node = lab.c["n0"].status
    lab.c.wait(f"life {n + 1}, {stage}", lambda: at(node()) == (n + 1, stage), 60)
    lab.proxy.cut()
    lab.c.wait("the outage seen by all", lambda: not any(lab.stores()), 30)
    lab.proxy.open()
    restarted_once(lab, before, n)


def at(status: dict[str, dict[str, dict[str, object]]]) -> tuple[object, object]:
    serve = status["groups"]["serve"]
    return serve["generation"], serve["stage"]


def restarted_once(lab: Lab, before: dict[str, int], n: int) -> None:
    """One life later every rank is new, and nothing else is."""
    lab.c.wait(f"life {n + 1}", lambda: lab.in_order() and lab.c.life() == {(n + 1, "go")}, 120)
    after = lab.c.pids()
    ranks = {k for k in before if " rank/" in k}
    assert [k for k in ranks if after[k] == before[k]] == []
    kept(lab, *({k: v for k, v in pids.items() if k not in ranks} for pids in (before, after)))
    assert lab.c.bumps().count(n + 1) == 1
