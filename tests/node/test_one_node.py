"""One node with a real etcd, a real datasystem worker and two stand-in ranks."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.prometheus import expressions, unknown
from yrnode.process import table


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text()) as node:
        node.wait_ready()
        yield node


def moves(node: YrNode, target: str) -> list[str]:
    return [e["what"] for e in node.events() if e["target"] == target]


def first(node: YrNode, target: str, what: str) -> int:
    return next(e["seq"] for e in node.events() if e["target"] == target and e["what"] == what)


def kill_and_recover(node: YrNode, name: str, pid: int, seconds: float = 60.0) -> float:
    """SIGKILL a process, wait until the stack is ready again with a later generation; seconds until it was seen."""
    generation = node.component(name)["generation"]
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    node.wait(f"{name} seen", lambda: node.component(name)["state"] != "ready", 20)
    seen = time.monotonic() - began
    node.wait(
        f"{name} ready again",
        lambda: (s := node.status())["ready"] and s["components"][name]["generation"] > generation,
        seconds,
    )
    return seen


def test_planes_start_in_order_each_on_proof(node: YrNode) -> None:
    assert first(node, "etcd", "ready") < first(node, "worker", "start")
    assert first(node, "worker", "ready") < first(node, "rank/serve/0", "start")
    assert first(node, "rank/serve/1", "ready") < first(node, "yrnode", "ready")
    checks = node.component("worker")["checks"]
    assert {name: checks[name]["verdict"] for name in ("key", "ring", "kv")} == dict.fromkeys(
        ("key", "ring", "kv"), "ok"
    )
    assert "4 random keys" in checks["kv"]["evidence"]


def test_what_is_seen_from_outside(node: YrNode) -> None:
    assert node.get("/livez")[0] == node.get("/readyz")[0] == 200
    metrics = node.get("/metrics")[1]
    assert 'yrnode_component_up{component="rank/serve/1",node="n0",plane="engine"} 1.0' in metrics
    status = json.loads(node.cli("status", "-o", "json").stdout)
    assert status["ready"]
    assert set(status["components"]) == {"etcd", "worker", "rank/serve/0", "rank/serve/1"}
    assert "application startup complete" in node.cli("logs", "rank/serve/0").stdout.lower()


def test_alerts_and_dashboard_name_only_what_is_served(node: YrNode) -> None:
    page = node.get("/metrics")[1]
    assert {e: found for e in expressions() if (found := unknown(e, page))} == {}


def test_the_second_identical_prompt_hits_the_external_cache(node: YrNode) -> None:
    done = node.cli("verify", "-o", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["completion"]
    hits = [report["ranks"][f"rank/serve/{n}"]["external_hits"] for n in (0, 1)]
    assert min(hits) > 0, "each found what the other had stored"
    assert report["external_cache_hits"] == sum(hits)


def test_a_killed_etcd_restarts_on_its_data_and_nothing_else_does(node: YrNode) -> None:
    before = node.pids()
    assert kill_and_recover(node, "etcd", before["etcd"]) < 1.0
    after = node.pids()
    assert after["etcd"] != before["etcd"]
    assert {k: v for k, v in after.items() if k != "etcd"} == {k: v for k, v in before.items() if k != "etcd"}
    assert "SIGKILL" in next(e for e in node.events() if e["target"] == "etcd" and e["what"] == "stop")["text"]
    # the worker found its own key and ring again: the data was kept
    node.wait("the worker's key", lambda: node.component("worker")["checks"]["key"]["verdict"] == "ok", 30)


def test_a_killed_worker_restarts_alone(node: YrNode) -> None:
    before = node.pids()
    assert kill_and_recover(node, "worker", before["worker"]) < 1.0
    after = node.pids()
    assert after["worker"] != before["worker"]
    assert [after[k] for k in ("etcd", "rank/serve/0", "rank/serve/1")] == [
        before[k] for k in ("etcd", "rank/serve/0", "rank/serve/1")
    ]
    assert node.component("worker")["last_failure"]["cause"].startswith("exited: killed by SIGKILL")


def test_a_killed_rank_restarts_its_group_once(node: YrNode) -> None:
    before, n = node.pids(), node.status()["groups"]["serve"]["generation"]
    assert kill_and_recover(node, "rank/serve/0", before["rank/serve/0"]) < 1.0
    after = node.pids()
    assert node.status()["groups"]["serve"]["generation"] == n + 1
    assert (after["etcd"], after["worker"]) == (before["etcd"], before["worker"])
    assert after["rank/serve/1"] != before["rank/serve/1"]
    assert "rank/serve/0" in node.status()["groups"]["serve"]["cause"]
    # SIGKILL of the API server alone leaves its engine: it must not have outlived the restart
    children = [p for p in table.scan() if p.sid == before["rank/serve/0"] and p.state not in "ZX"]
    assert children == []


def test_a_dead_engine_core_restarts_the_group(node: YrNode) -> None:
    leader = node.pids()["rank/serve/1"]
    core = next(p.pid for p in table.scan() if p.sid == leader and "EngineCor" in p.comm)
    n = node.status()["groups"]["serve"]["generation"]
    kill_and_recover(node, "rank/serve/1", core)
    assert node.status()["groups"]["serve"]["generation"] == n + 1


def test_an_operator_stops_and_starts(node: YrNode) -> None:
    before = node.pids()
    done = node.cli("stop", "serve", "--yes")
    assert done.returncode == 0, done.stderr
    node.wait("ranks stopped", lambda: node.component("rank/serve/0")["state"] == "stopped")
    assert node.component("etcd")["pid"] == before["etcd"]
    assert node.get("/readyz")[0] in (200, 503)
    assert node.cli("start", "rank/serve/1", "--yes").returncode == 0
    node.wait_ready()
    after = node.pids()
    assert after["rank/serve/0"] != before["rank/serve/0"]
    assert after["worker"] == before["worker"]


def test_restart_all_goes_down_and_up_in_order(node: YrNode) -> None:
    before, last = node.pids(), node.events()[-1]["seq"]
    assert node.cli("restart", "all", "--yes").returncode == 0
    node.wait("new etcd", lambda: node.pids()["etcd"] not in (None, before["etcd"]))
    node.wait_ready()
    after = node.pids()
    assert not set(after.values()) & set(before.values())
    events = [(e["target"], e["what"]) for e in node.events() if e["seq"] > last]
    assert events.index(("rank/serve/0", "rest")) < events.index(("worker", "stop"))
    assert events.index(("worker", "rest")) < events.index(("etcd", "stop"))


def test_unknown_target_and_unknown_component(node: YrNode) -> None:
    for words in (("restart", "nothing", "--yes"), ("logs", "nothing")):
        done = node.cli(*words)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert "rank/serve/0" in done.stderr


def test_a_second_yrnode_is_refused(node: YrNode) -> None:
    done = node.cli("run")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert str(node.process.pid) in done.stderr or "in use" in done.stderr


def test_stop_leaves_nothing(node: YrNode) -> None:
    status = node.status()
    pids = node.pids()
    assert node.stop() == 0
    assert node.left() == []
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids.values())
    assert [p for p in node.dir.rglob("*") if p.is_socket()] == []
    text = node.config.read_text()
    for port in (
        int(word) for word in text.replace(",", " ").replace('"', " ").replace(":", " ").split() if word.isdigit()
    ):
        if 20000 <= port < 32000:
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
    assert status["cluster"] in text
    lines = node.output.read_text().splitlines()
    order = [line.split(" INFO ")[1].split(":")[0] for line in lines if ": rest: " in line][-4:]
    assert order[2:] == ["worker", "etcd"]
