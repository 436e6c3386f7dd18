"""What hangs is restarted, on two witnesses; what only looks like it is reported. The file shortens the periods."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.serving import RANK, Watched, ask, check, core, generation, hang_and_recover, url

STALL_S = 4.0
CHECKS = f"""
checks:
  rank.engine: {{period: 200ms}}
  rank.progress: {{period: 200ms, stall_timeout: {STALL_S:g}s}}
  rank.canary: {{period: 2s, timeout: 1s}}
"""
# a step of 256 prompt tokens takes 0.13 s
ARGS = ", standin-prefill-rate: 2000, max-num-batched-tokens: 256, max-num-seqs: 4, shutdown-timeout: 1"


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(extra_args=ARGS, more=CHECKS)) as node:
        node.wait_ready()
        yield node


# what only looks like a hang


def test_a_long_prefill_moves(node: YrNode, pool: ThreadPoolExecutor) -> None:
    words = " ".join(str(time.time_ns() + i)[-7:] for i in range(11_000))
    with Watched(node) as watched:
        began = time.monotonic()
        answer = ask(url(node), 60, prompt=words, max_tokens=1)
        took = time.monotonic() - began
    assert answer["usage"]["prompt_tokens"] >= 11_000
    assert took > STALL_S, "it must last longer than a hang may"
    assert watched.failed == set()


def test_saturation_brings_no_verdict(node: YrNode, pool: ThreadPoolExecutor) -> None:
    until = time.monotonic() + STALL_S + 2
    slowest: list[float] = []

    def client() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            ask(url(node), 60, max_tokens=400)
            slowest.append(time.monotonic() - began)

    with Watched(node) as watched:
        for future in [pool.submit(client) for _ in range(12)]:
            future.result(90)
    assert max(slowest) > 1.0, "a canary would have been late"
    assert watched.failed == set()


def test_one_stuck_request_is_reported_and_the_rank_lives(node: YrNode, pool: ThreadPoolExecutor) -> None:
    with Watched(node):
        stuck = pool.submit(ask, url(node), 2.0 + STALL_S, prompt=f"[standin:stuck] {time.time_ns()}")
        verdict, evidence = node.wait(
            "a report", lambda: (c := check(node, "progress")) and "requests are stuck" in c[1] and c, 10
        )
        assert verdict == "fail"
        # a canary that is just being answered may be counted too
        assert re.match("[12] in flight without movement for ", evidence)
        assert check(node, "canary")[0] == "ok"
        assert ask(url(node), 5)["usage"]["completion_tokens"] == 4
        with pytest.raises(OSError, match="timed out"):
            stuck.result(30)
    node.wait("an end of it", lambda: check(node, "progress") == ("ok", "idle"), 10)


def test_a_stall_that_ends_well_is_reported_and_learnt_from(node: YrNode, pool: ThreadPoolExecutor) -> None:
    pid = core(node)
    with Watched(node) as watched:
        busy = pool.submit(ask, url(node), 60, max_tokens=500)
        node.wait("load", lambda: "in flight" in check(node, "progress")[1], 5)
        os.kill(pid, signal.SIGUSR2)
        began = time.monotonic()
        node.wait("a late canary", lambda: check(node, "canary")[0] == "fail", 10)
        node.wait("two thirds of a hang", lambda: time.monotonic() - began > STALL_S * 2 / 3, 10)
        os.kill(pid, signal.SIGUSR2)
        assert busy.result(30)["usage"]["completion_tokens"] == 500
        node.wait("a good canary", lambda: check(node, "canary")[0] == "ok", 10)
    assert any("nothing has moved for" in line for line in watched.failed)


# what is one


def test_an_engine_that_spins_instead_of_serving(node: YrNode) -> None:
    n = generation(node)
    os.kill(core(node), signal.SIGUSR2)
    took, bump = hang_and_recover(node, n, 40)
    # twice the stall before, which ended well, and up to one period until the idle canary
    assert STALL_S - 0.5 < took < 2 * STALL_S + 8
    assert bump["reason"] == "hang"
    assert bump["text"].startswith("the engine hangs: no progress for ")
    assert "canary: no token within 1 s" in bump["evidence"]


@pytest.mark.parametrize("load", [0, 3])
def test_a_frozen_engine(node: YrNode, pool: ThreadPoolExecutor, load: int) -> None:
    n, pid = generation(node), core(node)
    calls: list[Future[Any]] = [pool.submit(ask, url(node), 60, max_tokens=5000) for _ in range(load)]
    if load:
        node.wait("load", lambda: check(node, "progress")[1].startswith("3 in flight"), 10)
    os.kill(pid, signal.SIGSTOP)
    took, bump = hang_and_recover(node, n, 20)
    assert took < 5
    assert bump["reason"] == "hang"
    assert bump["text"] == "the engine hangs: its processes are frozen"
    assert f"VLLM::EngineCor (pid {pid}, state T)" in bump["evidence"]
    assert bump["culprit"] == RANK
    ends = [call.exception(60) or call.result()["choices"][0]["finish_reason"] for call in calls]
    assert "length" not in ends
    assert not os.path.exists(f"/proc/{pid}")


def test_a_frozen_worker_restarts_alone(node: YrNode) -> None:
    before = node.pids()
    os.kill(before["worker"], signal.SIGSTOP)
    began = time.monotonic()
    node.wait("it seen", lambda: node.component("worker")["state"] != "ready", 10)
    assert time.monotonic() - began < 5
    node.wait_ready(60)
    after = node.pids()
    assert after.pop("worker") != before.pop("worker")
    assert after == before
    stop = next(e for e in node.events() if e["target"] == "worker" and e["what"] == "stop")
    assert (stop["reason"], "state T" in stop["evidence"]) == ("hang", True)


def test_a_frozen_etcd_restarts_alone(node: YrNode) -> None:
    before = node.pids()
    os.kill(before["etcd"], signal.SIGSTOP)
    began = time.monotonic()
    node.wait("it seen", lambda: node.component("etcd")["state"] != "ready", 10)
    assert time.monotonic() - began < 5
    node.wait_ready()
    after = node.pids()
    assert after.pop("etcd") != before.pop("etcd")
    assert after == before
