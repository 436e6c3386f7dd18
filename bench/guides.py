"""The look that the deployment guides take at a worker, on a frozen one that yrnode leaves alone."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import peers
from bench.result import Peer
from tests.support.node import YrNode

PROBE = "the guides' probe"
PERIOD_S = 1.0
"""The guides name no period; with another one it is later still."""
NEVER = Peer(PROBE, why="its completion may take 1200 s, longer than all of this")


@dataclass
class Watch:
    """`peer`: what was found, once the block is over."""

    peer: Peer


@contextlib.contextmanager
def watching(node: YrNode) -> Iterator[Watch]:
    """Freezes this node's worker, and waits at the end until the probe has seen it: `peer` is there then."""
    found = Watch(Peer(PROBE, why="not measured"))
    try:
        node.wait_ready(120)
    except AssertionError as e:
        found.peer = Peer(PROBE, why=f"the stack was not ready: {str(e)[:200]}")
        yield found
        return
    paused = node.cli("pause", "--yes")
    if paused.returncode:
        found.peer = Peer(PROBE, why=f"yrnode did not pause: {paused.stderr.strip()[:200]}")
        yield found
        return
    pid = node.component("worker")["pid"]
    os.kill(pid, signal.SIGSTOP)
    thread = threading.Thread(target=_look, args=(node.home / "worker/liveness", found))
    thread.start()
    try:
        yield found
    finally:
        thread.join()
        os.kill(pid, signal.SIGCONT)


def _look(liveness: Path, found: Watch) -> None:
    began = time.monotonic()
    while not peers.guides_stale(liveness):
        if time.monotonic() - began > 2 * peers.STALE_S:
            found.peer = Peer(PROBE, why=f"not seen within {2 * peers.STALE_S} s")
            return
        time.sleep(PERIOD_S)
    took = time.monotonic() - began
    found.peer = Peer(PROBE, took, 1, f"looks each {PERIOD_S:g} s; the guides name no period")
