"""On a host without a free core everything is late. Nothing is restarted for it: that would make it later still."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.node import YrNode, cluster_text, yrnode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
BUSY_A_CORE = 50
"""With 100 the worker itself gives up: it lets its lease go, and ends itself."""
FOR_S = 40.0


@pytest.fixture
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text()) as node:
        node.wait_ready()
        yield node


@contextmanager
def no_free_core() -> Iterator[None]:
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(BUSY_A_CORE * len(os.sched_getaffinity(0))):
            # in sessions of their own: the kernel may share its cores among sessions (sched_autogroup)
            busy.append(subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], start_new_session=True))
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


def in_order(node: YrNode) -> bool:
    s = node.status()
    return s["ready"] and all(c["verdict"] == "ok" for c in s["components"]["worker"]["checks"].values())


def test_nothing_is_restarted(node: YrNode) -> None:
    before = node.pids()
    with no_free_core():
        time.sleep(FOR_S)  # how long it lasts is what is shown
    node.wait("all in order", lambda: in_order(node), 60)
    moves = [e for e in node.events() if e["what"] in ("stop", "bump", "unhealthy")]
    assert node.pids() == before, moves
    assert not moves
