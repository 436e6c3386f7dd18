"""One rank's link to the external cache is dead: requests with external hits hang there, short ones pass."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.serving import ask, check, generation, url
from yrnode.process import table

pytestmark = pytest.mark.long

HEALTHY, DEAD = "rank/serve/0", "rank/serve/1"
STALL_S = 5.0
CHECKS = f"""
checks:
  rank.progress: {{period: 200ms, stall_timeout: {STALL_S:g}s}}
  rank.canary: {{period: 1s, timeout: 1s}}
  rank.cache: {{period: 1s, timeout: 1s}}
"""
LOST = "requests with external hits do not finish, short ones do"


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(extra_args=", shutdown-timeout: 1", more=CHECKS)) as node:
        node.wait_ready()
        yield node


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def cut(node: YrNode, *names: str) -> None:
    """Take the ranks' links to the cache, or give them back."""
    for name in names:
        leader = node.pids()[name]
        os.kill(next(p.pid for p in table.scan() if p.sid == leader and "Worker" in p.comm), signal.SIGUSR2)


def stored(node: YrNode, name: str = HEALTHY) -> str:
    """A prompt of several blocks that the cache holds, put there by this rank."""
    prompt = " ".join(secrets.token_hex(3) for _ in range(200))
    ask(url(node, name), 10, prompt=prompt)
    time.sleep(0.3)
    return prompt


def hold(node: YrNode, seconds: float, condition: Callable[[], bool] = lambda: True) -> None:
    """The condition holds, and nothing is restarted, for so long."""
    before = generation(node), node.pids()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert condition()
        time.sleep(0.1)
    assert (generation(node), node.pids()) == before


def events(node: YrNode, what: str) -> list[dict[str, Any]]:
    return [e for e in node.events() if e["what"] == what]


def test_idle_ranks_hit_what_the_other_has_stored(node: YrNode) -> None:
    for name in (HEALTHY, DEAD):
        node.wait("a hit", lambda n=name: (c := check(node, "cache", n))[0] == "ok" and " 0 tokens" not in c[1], 20)


def test_a_dead_link_of_an_idle_rank_is_said_and_restarts_nothing(node: YrNode) -> None:
    cut(node, DEAD)
    node.wait("a word", lambda: LOST in check(node, "cache", DEAD)[1], 20)
    assert check(node, "canary", DEAD)[0] == "ok"
    assert check(node, "cache", HEALTHY)[0] == "ok"
    hold(node, STALL_S + 1)
    cut(node, DEAD)
    node.wait("it good again", lambda: check(node, "cache", DEAD)[0] == "ok", 60)
    assert node.cli("verify", timeout=90).returncode == 0
    told = [(e["what"], e["target"]) for e in node.events() if "check cache" in e["text"]]
    assert told == [("check-failed", DEAD), ("check-passed", DEAD)]


def test_one_request_that_hangs_is_said_and_restarts_nothing(node: YrNode, pool: ThreadPoolExecutor) -> None:
    cut(node, DEAD)
    prompt = stored(node)
    stuck = pool.submit(ask, url(node, DEAD), 3 * STALL_S, prompt=prompt)
    node.wait("a report", lambda: "requests are stuck" in check(node, "progress", DEAD)[1], 20)
    hold(node, STALL_S + 2, lambda: ask(url(node, DEAD), 5)["usage"]["completion_tokens"] == 4)
    with pytest.raises(OSError, match="timed out"):
        stuck.result(60)
    cut(node, DEAD)
    node.wait("it good again", lambda: check(node, "cache", DEAD)[0] == "ok", 60)


@pytest.mark.parametrize("busy", [False, True])
def test_several_that_hang_restart_the_group_once(node: YrNode, pool: ThreadPoolExecutor, busy: bool) -> None:
    n, worker = generation(node), node.pids()["worker"]
    cut(node, DEAD)
    prompts = [stored(node) for _ in range(3)]
    began = time.monotonic()
    stuck = [pool.submit(ask, url(node, DEAD), 120, prompt=p) for p in prompts]
    while generation(node) == n:
        assert time.monotonic() - began < 60
        if busy:
            assert ask(url(node, DEAD), 5)["usage"]["completion_tokens"] == 4
        time.sleep(0.2)
    assert time.monotonic() - began >= STALL_S
    node.wait_ready()
    bump = events(node, "bump")[-1]
    assert (bump["reason"], bump["culprit"]) == ("hang", DEAD)
    assert "do not finish for " in bump["text"]
    assert "short ones do: the rank's link to the cache is dead" in bump["text"]
    assert LOST in bump["evidence"] or not busy
    ends = [call.exception(60) or call.result()["choices"][0]["finish_reason"] for call in stuck]
    assert "length" not in ends
    hold(node, STALL_S + 2)
    assert generation(node) == n + 1
    assert node.pids()["worker"] == worker
    assert ask(url(node, DEAD), 10, prompt=prompts[0])["usage"]["completion_tokens"] == 4
    # a third fault in a row would be the last
    assert node.cli("restart", "serve", "--yes").returncode == 0
    node.wait("the restart", lambda: generation(node) == n + 2)
    node.wait_ready()


def test_a_frozen_worker_under_load_is_restarted_and_no_rank(node: YrNode, pool: ThreadPoolExecutor) -> None:
    n, before = generation(node), node.pids()
    prompts = [stored(node) for _ in range(3)]
    os.kill(before["worker"], signal.SIGSTOP)
    calls: list[Future[Any]] = [pool.submit(ask, url(node, DEAD), 90, prompt=p) for p in prompts]
    node.wait("it seen", lambda: node.component("worker")["state"] != "ready", 20)
    node.wait_ready()
    assert [c.result(90)["usage"]["completion_tokens"] for c in calls] == [4, 4, 4]
    node.wait("hits again", lambda: " 0 tokens" not in (c := check(node, "cache", DEAD))[1] and c[0] == "ok", 60)
    after = node.pids()
    assert after.pop("worker") != before.pop("worker")
    assert (after, generation(node)) == (before, n)
