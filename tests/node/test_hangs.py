"""What hangs is restarted, on two witnesses; what only looks like it is reported. The file shortens the periods."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from yrnode.process import table

RANK = "rank/serve/1"
STALL_S = 4.0
CHECKS = f"""
checks:
  rank.engine: {{period: 200ms}}
  rank.progress: {{period: 200ms, stall_timeout: {STALL_S:g}s}}
  rank.canary: {{period: 2s, timeout: 1s}}
"""
# a step of 256 prompt tokens takes 0.13 s
ARGS = ", standin-prefill-rate: 2000, max-num-batched-tokens: 256, max-num-seqs: 4, shutdown-timeout: 1"
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(extra_args=ARGS, more=CHECKS)) as node:
        node.wait_ready()
        yield node


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def url(node: YrNode, name: str = RANK) -> str:
    return node.component(name)["checks"]["health"]["evidence"].partition("/health")[0]


def ask(base: str, seconds: float, **body: Any) -> dict[str, Any]:
    request = {"model": "demo", "prompt": f"{time.time_ns()}", "max_tokens": 4, "ignore_eos": True, **body}
    data = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with _OPEN(urllib.request.Request(f"{base}/v1/completions", data, headers), timeout=seconds) as answer:
        return json.load(answer)


def core(node: YrNode, name: str = RANK) -> int:
    leader = node.pids()[name]
    return next(p.pid for p in table.scan() if p.sid == leader and "EngineCor" in p.comm)


def check(node: YrNode, name: str, component: str = RANK) -> tuple[str, str]:
    found = node.component(component)["checks"][name]
    return found["verdict"], found["evidence"]


def generation(node: YrNode) -> int:
    return node.status()["groups"]["serve"]["generation"]


class Watched:
    """Every failing verdict of the ranks' checks while the block runs."""

    def __init__(self, node: YrNode) -> None:
        self.node = node
        self.failed: set[str] = set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._done.wait(0.05):
            for name, c in self.node.status()["components"].items():
                bad = [f"{name} {k}: {v['evidence']}" for k, v in c["checks"].items() if v["verdict"] == "fail"]
                self.failed.update(bad)

    def __enter__(self) -> Watched:
        self.before = generation(self.node), self.node.pids()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        assert (generation(self.node), self.node.pids()) == self.before, "something was restarted"


def hang_and_recover(node: YrNode, n: int, seconds: float) -> tuple[float, dict[str, Any]]:
    """Waits for one restart of the group; seconds until it was decided, and the event."""
    began = time.monotonic()
    node.wait("the bump", lambda: generation(node) > n, seconds)
    took = time.monotonic() - began
    bump = [e for e in node.events() if e["target"] == "serve" and e["what"] == "bump"][-1]
    node.wait_ready()
    assert generation(node) == n + 1
    if node.status()["groups"]["serve"]["fails"] == 2:
        # the third in a row would be the last; a word of an operator's begins a new row
        assert node.cli("restart", "serve", "--yes").returncode == 0
        node.wait("the restart", lambda: generation(node) > n + 1)
        node.wait_ready()
    return took, bump


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
        assert evidence.startswith("1 in flight without movement for ")
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
    assert STALL_S < took < 2 * STALL_S + 8
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
    node.wait_ready(25)
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
