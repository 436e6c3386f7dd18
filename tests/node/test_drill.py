"""`yrnode drill` on a running stack: what it reports is what happened."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.node import YrNode, cluster_text, yrnode
from yrnode.policy.recovery import COMPONENT, GROUP

RANKS = ["rank/serve/0", "rank/serve/1"]


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text()) as node:
        node.wait_ready()
        yield node


def drill(node: YrNode, *words: str) -> dict[str, Any]:
    node.wait_ready()
    done = node.cli("drill", *words, "--yes", "--limit", "90", "-o", "json", timeout=110)
    result = json.loads(done.stdout)
    print(
        f"\n{result['drill']} {result['target']}: seen {result['detected_ms']} ms, ready {result['recovered_ms']} ms"
    )
    assert (done.returncode == 0) is result["passed"]
    return result


@pytest.mark.parametrize(
    ("words", "restarted"),
    [
        (("kill", "etcd"), ["etcd"]),
        (("kill", "worker"), ["worker"]),
        (("kill", "rank/serve/1"), RANKS),
        (("hang", "rank/serve/0"), RANKS),
        (("freeze", "etcd"), ["etcd"]),
        (("freeze", "worker"), ["worker"]),
        (("store-empty",), ["etcd", "worker"]),
    ],
    ids="-".join,
)
def test_a_drill_is_seen_healed_and_touches_nothing_else(
    node: YrNode, words: tuple[str, ...], restarted: list[str]
) -> None:
    node.wait_ready()
    before = recoveries(node)
    result = drill(node, *words)
    assert result["passed"], result
    assert result["restarted"] == restarted
    assert 0 <= result["detected_ms"] <= result["recovered_ms"]
    groups = {"rank/serve/0": "serve", "etcd worker": "cache"}
    of = groups.get(restarted[0]) or groups.get(" ".join(restarted)) or restarted[0]
    phases = ("seen", *(GROUP if of in groups.values() else COMPONENT))

    def since() -> list[tuple[float, float]]:
        now = recoveries(node)
        pairs = [(now.get((of, p), (0.0, 0.0)), before.get((of, p), (0.0, 0.0))) for p in phases]
        return [(a[0] - b[0], a[1] - b[1]) for a, b in pairs]

    node.wait("every phase", lambda: all(count == 1 for count, _ in since()))
    took = [seconds for _, seconds in since()]
    print(f"  {of}: {', '.join(f'{p} {s:.3f} s' for p, s in zip(phases, took, strict=True))}")
    assert took == sorted(took)
    assert took[-1] <= result["recovered_ms"] / 1000 + 2


def recoveries(node: YrNode) -> dict[tuple[str, str], tuple[float, float]]:
    """By group or component and phase: how many, and their seconds together."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for family in text_string_to_metric_families(node.get("/metrics")[1]):
        values = {
            (s.labels["group"] or s.labels["component"], s.labels["phase"], s.name): s.value
            for s in family.samples
            if family.name == "yrnode_recovery_seconds" and not s.name.endswith("_bucket")
        }
        found |= {
            (of, p): (count, values[of, p, f"{family.name}_sum"])
            for (of, p, name), count in values.items()
            if name.endswith("_count")
        }
    return found


def test_drills_use_up_no_budget(node: YrNode) -> None:
    status = node.status()
    assert status["groups"]["serve"]["fails"] == 0
    assert all(c["last_failure"] is None for c in status["components"].values())


def test_what_does_not_fit_is_refused(node: YrNode) -> None:
    node.wait_ready()
    for words in (("hang", "etcd"), ("store-empty", "worker"), ("kill", "nothing"), ("explode", "etcd"), ("kill",)):
        done = node.cli("drill", *words)
        assert done.returncode == 2, done
        assert len(done.stderr.strip().splitlines()) == 1
    assert node.status()["ready"]


def test_a_killed_daemon_that_nobody_starts_again_is_said(node: YrNode) -> None:
    node.wait_ready()
    before = node.pids()
    done = node.cli("drill", "daemon-kill", "--yes", "--why", "to see", "--limit", "2", "-o", "json")
    result = json.loads(done.stdout)
    assert not result["passed"]
    assert "started yrnode again" in result["why"]
    assert node.process.wait(5) == -signal.SIGKILL
    node.start()
    node.wait_ready()
    assert node.pids() == before
    (told,) = [e["text"] for e in node.events() if e["what"] == "drill" and e["target"] == "yrnode"]
    assert told.startswith("drill daemon-kill yrnode by ")
    assert told.endswith(": to see")


@pytest.mark.long
def test_a_stop_during_a_store_drill_ends_and_the_next_start_is_whole(node: YrNode) -> None:
    node.wait_ready()
    with ThreadPoolExecutor(1) as pool:
        drilling = pool.submit(node.cli, "drill", "store-down", "--yes", "--limit", "20", timeout=60)
        node.wait("etcd away", lambda: node.component("etcd").get("state") == "stopped")
        # any word has the wishes written down
        assert node.cli("restart", "rank/serve/0", "--yes").returncode == 0
        assert "etcd" not in json.loads((node.home / "wishes.json").read_text())["unwanted"]
        assert node.cli("stop", "etcd", "--dry-run").stdout.startswith("stop etcd: stops etcd")
        assert node.stop(60) == 0
        assert drilling.result().returncode == 1
    assert node.left() == []
    node.start()
    node.wait_ready()


@pytest.mark.long
def test_an_operators_stop_during_a_store_drill_stays(node: YrNode) -> None:
    node.wait_ready()
    with ThreadPoolExecutor(1) as pool:
        drilling = pool.submit(node.cli, "drill", "store-down", "--yes", "--limit", "12", timeout=60)
        node.wait("etcd away", lambda: node.component("etcd").get("state") == "stopped")
        assert node.cli("stop", "etcd", "--yes").returncode == 0
        assert drilling.result().returncode == 1
    assert node.component("etcd")["state"] == "stopped"
    assert "etcd" in json.loads((node.home / "wishes.json").read_text())["unwanted"]
    assert node.cli("start", "etcd", "--yes").returncode == 0
    node.wait_ready()
