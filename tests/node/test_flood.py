"""A node whose API is flooded heals as ever, takes its operator's words, and is afterwards as it was."""

from __future__ import annotations

import contextlib
import json
import resource
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.api.served import ask, connect
from tests.support.node import YrNode, cluster_text, yrnode
from yrnode.api.refusals import FIRST, WINDOW_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FLOODS = (
    b"POST /control/stop HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\r\n\r\n",
)


def test_a_flooded_node_heals_and_does_not_grow() -> None:
    with yrnode(cluster_text(ranks=1)) as node:
        node.wait_ready()
        for path in ("/status", "/metrics", "/", "/events?since=0") * 20:
            assert node.get(path)[0] == 200
        daemon, began, slowest = psutil.Process(node.process.pid), time.monotonic(), 0.0
        fds, rss = daemon.num_fds(), daemon.memory_info().rss
        with flooded(node):
            for _ in range(10):
                asked = time.monotonic()
                assert node.cli("status", timeout=60).returncode in (0, 1)
                slowest = max(slowest, time.monotonic() - asked)
            done = node.cli("drill", "kill", "rank/serve/0", "--yes", "--limit", "60", "-o", "json", timeout=110)
        result = json.loads(done.stdout)
        node.wait("files closed", lambda: daemon.num_fds() <= fds + 2)
        grown = (daemon.memory_info().rss - rss) / 2**20
        rounds = slow_rounds(node)
        print(f"\n{grown:.1f} MiB more, status within {slowest:.2f} s, {result}, rounds above 0.5 s: {rounds}")
        assert result["passed"], result
        assert grown < 40
        refused = [e for e in node.events() if e["what"] == "refused"]
        assert 1 <= len(refused) <= (FIRST + 1) * (2 + (time.monotonic() - began) / WINDOW_S)
        assert node.output.read_text().count("could not be served") <= 2 + (time.monotonic() - began) / WINDOW_S
        assert rounds == 0


def slow_rounds(node: YrNode) -> float:
    """Rounds of the loop that took more than half a second."""
    found = {}
    for line in node.get("/metrics")[1].splitlines():
        if line.startswith("yrnode_loop_duration_seconds_bucket"):
            found[line.partition('le="')[2].partition('"')[0]] = float(line.rpartition(" ")[2])
    return found["+Inf"] - found["0.5"]


@contextlib.contextmanager
def flooded(node: YrNode) -> Iterator[None]:
    """A thousand connections that ask for streams, and clients that send changes, questions and garbage."""
    port, over = int(node.api.rpartition(":")[2]), threading.Event()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))

    def flood(words: bytes) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                ask(port, words)

    threads = [threading.Thread(target=flood, args=(words,)) for words in FLOODS]
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            with contextlib.suppress(OSError):
                stack.enter_context(connect(port)).sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        for t in threads:
            t.start()
        try:
            yield
        finally:
            over.set()
            for t in threads:
                t.join(30)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
