"""A node's ranks as a client and an observer sees them: what they answer, what their checks say, what restarts."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from typing import Any

from tests.support.node import YrNode
from yrnode.process import table

RANK = "rank/serve/1"
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


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
