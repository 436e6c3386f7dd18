"""Hangs and what looks like them in real time, with the settings that a file without `checks` has."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.serving import Watched, ask, check, core, generation, hang_and_recover, url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STALL_TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(extra_args=", max-num-seqs: 4, shutdown-timeout: 1")) as node:
        node.wait_ready()
        yield node


@pytest.mark.parametrize("load", [0, 3])
def test_a_frozen_engine(node: YrNode, pool: ThreadPoolExecutor, load: int) -> None:
    n, pid = generation(node), core(node)
    calls = [pool.submit(ask, url(node), 60, max_tokens=20_000) for _ in range(load)]
    if load:
        node.wait("load", lambda: check(node, "progress")[1].startswith("3 in flight"), 10)
    os.kill(pid, signal.SIGSTOP)
    took, bump = hang_and_recover(node, n, 60)
    assert took < 15
    assert bump["text"] == "the engine hangs: its processes are frozen"
    for call in calls:
        call.exception(60)


def test_a_stall_of_70_s_that_ends_well(node: YrNode, pool: ThreadPoolExecutor) -> None:
    pid = core(node)
    with Watched(node) as watched:
        busy = pool.submit(ask, url(node), 200, max_tokens=3000)
        node.wait("load", lambda: "in flight" in check(node, "progress")[1], 10)
        os.kill(pid, signal.SIGUSR2)
        time.sleep(70)  # the length of the stall is what is shown
        os.kill(pid, signal.SIGUSR2)
        assert busy.result(60)["usage"]["completion_tokens"] == 3000
        node.wait("a good canary", lambda: check(node, "canary")[0] == "ok", 60)
    assert any("nothing has moved for 6" in line for line in watched.failed)


def test_one_request_stuck_for_ever_while_others_are_answered(node: YrNode, pool: ThreadPoolExecutor) -> None:
    with Watched(node):
        stuck = pool.submit(ask, url(node), 150, prompt=f"[standin:stuck] {time.time_ns()}")
        verdict, evidence = node.wait(
            "a report", lambda: (c := check(node, "progress")) and "requests are stuck" in c[1] and c, 90
        )
        assert verdict == "fail"
        # a canary that is just being answered may be counted too
        assert re.match("[12] in flight without movement for ", evidence)
        began = time.monotonic()
        answered = 0
        while time.monotonic() - began < 45:
            answered += ask(url(node), 20)["usage"]["completion_tokens"] == 4
        assert answered > 10
        with pytest.raises(OSError, match="timed out"):
            stuck.result(160)
    node.wait("an end of it", lambda: check(node, "progress") == ("ok", "idle"), 30)


def test_a_liveness_file_that_stops_changing_restarts_nothing(node: YrNode) -> None:
    """A folder in its place, which the worker cannot write: the file is no evidence of its own."""
    path = node.dir / "state/worker/liveness"
    try:
        with Watched(node) as watched:
            while not path.is_dir():
                # the worker makes it anew within 0.1 s
                path.unlink(missing_ok=True)
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
            node.wait("a report", lambda: check(node, "liveness", "worker")[0] == "fail", 30)
            time.sleep(60)  # it may stay so for long
            assert "has not changed for" in check(node, "liveness", "worker")[1]
            assert check(node, "kv", "worker")[0] == "ok"
            assert node.status()["ready"]
    finally:
        path.rmdir()
    assert [line for line in watched.failed if not line.startswith("worker liveness")] == []
    node.wait("it being written again", lambda: check(node, "liveness", "worker")[0] == "ok", 10)


def test_three_minutes_of_saturation(node: YrNode, pool: ThreadPoolExecutor) -> None:
    until = time.monotonic() + 180

    def client() -> None:
        while time.monotonic() < until:
            ask(url(node), 170, max_tokens=2000)

    with Watched(node) as watched:
        for future in [pool.submit(client) for _ in range(24)]:
            future.result(400)
    assert watched.failed == set()


def test_an_engine_that_spins(node: YrNode) -> None:
    n = generation(node)
    os.kill(core(node), signal.SIGUSR2)
    took, bump = hang_and_recover(node, n, 300)
    assert STALL_TIMEOUT_S < took < STALL_TIMEOUT_S + 60
    assert bump["text"].startswith("the engine hangs: no progress for 18")
