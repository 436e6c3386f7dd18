"""The router's members follow readiness: a real daemon, stand-in engines, and a stand-in of the sample proxy."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.routed import PROXY, STANDIN, D, Node, P, running, split
from tests.support.serving import ask

_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running(split()) as found:
        yield found


def test_ready_ranks_are_in_and_a_request_goes_through_both(node: Node) -> None:
    node.wait_members(p="in", d="in")
    assert node.listed() == {node.url(P), node.url(D)}
    assert sorted(node.marks("member-in")) == [("member-in", D), ("member-in", P)]
    assert ask(node.router, 10)["usage"]["completion_tokens"] == 4


def test_out_before_the_stop_and_in_again_after_the_warm_up(node: Node) -> None:
    node.wait_members(p="in", d="in")
    before = len(node.events())
    assert node.cli("restart", "p", "--yes").returncode == 0
    node.wait("p out", lambda: node.members()[P] == "out")
    assert node.listed() == {node.url(D)}
    node.wait_ready()
    node.wait_members(p="in", d="in")
    marks = [m for m in node.marks("left-router", "rest", "ready", "member-in", since=before) if m[1] == P]
    assert marks == [("left-router", P), ("rest", P), ("ready", P), ("member-in", P)]
    assert ("member-out", P) in node.marks("member-out", since=before)
    assert not [m for m in node.marks("member-in", "member-out", since=before) if m[1] == D], "d was touched"


def test_a_rank_that_dies_is_taken_out(node: Node) -> None:
    node.wait_members(p="in", d="in")
    before = len(node.events())
    os.kill(node.pids()[D], signal.SIGKILL)
    node.wait("d out", lambda: ("member-out", D) in node.marks("member-out", since=before))
    node.wait_members(p="in", d="in")
    out = next(e for e in node.events()[before:] if (e["what"], e["target"]) == ("member-out", D))
    assert "SIGKILL" in out["text"] or "generation" in out["text"]


def test_a_router_that_restarts_gets_who_is_ready_and_nobody_else(node: Node) -> None:
    node.wait_members(p="in", d="in")
    assert node.cli("stop", "p", "--yes").returncode == 0
    node.wait_members(p="out", d="in")
    node.wait("p stopped", lambda: node.component(P)["state"] == "stopped")
    assert node.cli("start", "p", "--yes").returncode == 0
    before = node.component("router")
    os.kill(before["pid"], signal.SIGKILL)
    # it is started again only above ranks that are ready, and lists both from its command line then
    node.wait("another router", lambda: node.component("router")["instance"] not in ("", before["instance"]))
    node.wait_ready()
    node.wait_members(p="in", d="in")
    assert node.listed() == {node.url(P), node.url(D)}


def test_a_frozen_router_costs_a_stop_two_seconds(node: Node) -> None:
    node.wait_members(p="in", d="in")
    before, pid = len(node.events()), node.component("router")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert node.cli("restart", "d", "--yes").returncode == 0
        found = node.wait("d left", lambda: [e for e in node.events()[before:] if e["what"] == "left-router"], 20)[-1]
        stop = next(e for e in node.events()[before:] if (e["target"], e["what"]) == (D, "stop"))
        assert "stops all the same" in found["text"]
        assert found["at"] - stop["at"] < 3.0
    finally:
        with contextlib.suppress(ProcessLookupError):
            # its health check may have replaced it
            os.kill(pid, signal.SIGCONT)
    node.wait_ready()
    node.wait_members(p="in", d="in")


@pytest.mark.slow
@pytest.mark.skipif(str(STANDIN) != PROXY, reason="a knob of the stand-in's")
def test_a_removal_that_waits_for_ever_delays_no_stop_and_a_busy_rank_is_set_aside() -> None:
    node = Node(split(", standin-token-time: 0.05", "standin-remove-waits: true"))
    answers: list[Any] = []
    try:
        node.start()
        node.wait_ready()
        node.wait_members(p="in", d="in")
        busy = threading.Thread(target=lambda: answers.append(ask(node.router, 60, max_tokens=160)))
        busy.start()
        load = f"http://{node.url(D)}/load"
        node.wait("a request", lambda: json.load(_OPEN(load, timeout=5))["server_load"], 10)
        before = len(node.events())
        assert node.cli("restart", "d", "--yes").returncode == 0
        left = node.wait("d left", lambda: [e for e in node.events()[before:] if e["what"] == "left-router"], 20)[-1]
        stop = next(e for e in node.events()[before:] if (e["target"], e["what"]) == (D, "stop"))
        assert "no answer within 2 s" in left["evidence"]
        assert 1.9 < left["at"] - stop["at"] < 4.0
        busy.join(60)
        # the rank finished what it had, within its own time to stop
        assert answers[0]["usage"]["completion_tokens"] == 160
        node.wait_ready()
        node.wait_members(p="in", d="in")
        assert node.listed() == {node.url(P), node.url(D)}
    finally:
        node.close()


def test_the_store_away_nobody_is_taken_out(node: Node) -> None:
    node.wait_members(p="in", d="in")
    before = len(node.events())
    etcd = node.component("etcd")["pid"]
    os.kill(etcd, signal.SIGSTOP)
    try:
        wanted = {"unknown"}
        node.wait("unknown", lambda: {m["wanted"] for m in node.status()["router"]["members"]} == wanted, 20)
        assert node.listed() == {node.url(P), node.url(D)}
    finally:
        with contextlib.suppress(ProcessLookupError):
            # a frozen one is replaced in the end
            os.kill(etcd, signal.SIGCONT)
    node.wait("known", lambda: {m["wanted"] for m in node.status()["router"]["members"]} == {"in"}, 30)
    assert node.marks("member-out", since=before) == []
