"""`yrnode drill` on a running stack: what it reports is what happened."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.node import YrNode, cluster_text, yrnode

RANKS = ["rank/serve/0", "rank/serve/1"]


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text()) as node:
        node.wait_ready()
        yield node


def drill(node: YrNode, *words: str) -> dict[str, Any]:
    node.wait_ready()
    done = node.cli("drill", *words, "--limit", "90", "-o", "json", timeout=110)
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
    result = drill(node, *words)
    assert result["passed"], result
    assert result["restarted"] == restarted
    assert 0 <= result["detected_ms"] <= result["recovered_ms"]


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
    done = node.cli("drill", "daemon-kill", "--limit", "2", "-o", "json")
    result = json.loads(done.stdout)
    assert not result["passed"]
    assert "started yrnode again" in result["why"]
    assert node.process.wait(5) == -signal.SIGKILL
    node.start()
    node.wait_ready()
    assert node.pids() == before
