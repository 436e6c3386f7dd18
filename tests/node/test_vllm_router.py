"""vLLM's own router before stand-in ranks: begins empty, is told who is ready, and is told again after its death."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.request
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.support import routed
from tests.support.cluster import cluster_of, free_everywhere
from tests.support.routed import D, Node, P, two_groups
from tests.support.serving import ask

ROUTER = os.environ.get("YRNODE_VLLM_ROUTER", "")
R0, R1 = "rank/serve/0", "rank/serve/1"
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not ROUTER, reason="YRNODE_VLLM_ROUTER is not set; use make test-slow"),
]


def kinds(node: Node) -> dict[str, str]:
    """What the router itself has: role by URL."""
    with _OPEN(f"{node.router}/workers", timeout=5) as answer:
        return {w["url"]: w["worker_type"] for w in json.load(answer)["workers"]}


def running(text: str) -> AbstractContextManager[Node]:
    return routed.running(text.replace("bin: {", f"bin: {{vllm_router: {ROUTER}, "))


def restarted(node: Node) -> None:
    """Kills the router, and waits until another one is up."""
    before = node.component("router")
    os.kill(before["pid"], signal.SIGKILL)
    node.wait("another", lambda: node.component("router").get("instance") not in ("", None, before["instance"]))
    node.wait_ready()


def test_prefill_and_decode_are_told_apart() -> None:
    with running(two_groups("kind: vllm-router", "prometheus-port: {metrics}", ", standin-token-time: 0.05")) as node:
        node.wait_members(p="in", d="in")
        roles = {f"http://{node.url(P)}": "prefill", f"http://{node.url(D)}": "decode"}
        assert kinds(node) == roles
        assert ask(node.router, 20)["usage"]["completion_tokens"] == 4
        # the check that goes through the router is of that mind too
        node.wait("completion", lambda: node.component("router")["checks"]["completion"]["verdict"] == "ok", 60)
        before = len(node.events())
        answers: list[Any] = []
        busy = threading.Thread(target=lambda: answers.append(ask(node.router, 60, max_tokens=60)))
        busy.start()
        load = f"http://{node.url(D)}/load"
        node.wait("a request", lambda: json.load(_OPEN(load, timeout=5))["server_load"], 20)
        assert node.cli("restart", "d", "--yes").returncode == 0
        node.wait("d out", lambda: node.members()[D] == "out")
        assert list(kinds(node).values()) == ["prefill"]
        busy.join(60)
        assert answers[0]["usage"]["completion_tokens"] == 60, "what was under way was cut"
        node.wait_members(p="in", d="in")
        marks = [m for m in node.marks("left-router", "rest", "ready", "member-in", since=before) if m[1] == D]
        assert marks == [("left-router", D), ("rest", D), ("ready", D), ("member-in", D)]
        restarted(node)
        node.wait_members(p="in", d="in")
        assert kinds(node) == roles
        assert ask(node.router, 20)["usage"]["completion_tokens"] == 4


def test_one_group_of_two_ranks() -> None:
    first = free_everywhere(1, 9)
    router = f"{{node: n0, kind: vllm-router, port: {first + 7}, args: {{prometheus-port: {first + 8}}}}}"
    with running(cluster_of(1, ranks=2, first=first, more=f"router: {router}")) as node:
        whole = {R0: "in", R1: "in"}
        node.wait("members", lambda: node.members() == whole, 30)
        assert set(kinds(node).values()) == {"regular"}
        for _ in range(4):
            assert ask(node.router, 20)["usage"]["completion_tokens"] == 4
        os.kill(node.pids()[R1], signal.SIGKILL)
        node.wait("both out", lambda: set(node.members().values()) == {"out"}, 30)
        node.wait("members", lambda: node.members() == whole, 60)
        restarted(node)
        node.wait("members", lambda: node.members() == whole, 30)
        found = node.cli("drain", "--yes", timeout=100)
        assert found.returncode == 0, found.stdout + found.stderr
        assert kinds(node) == {}
