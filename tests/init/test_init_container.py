"""A whole node below `yrnode run --init` as PID 1: what survives what."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.container import Container
from tests.support.node import cluster_text
from yrnode.init.contract import SIGNALS
from yrnode.process.table import Proc

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]
_WATCHDOG_S = 5


@pytest.fixture(scope="module")
def started() -> Iterator[Container]:
    node = Container(cluster_text(ranks=1))
    node.more = ("--watchdog", f"{_WATCHDOG_S}s")
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture
def node(started: Container) -> Container:
    """Ready, and with its daemon alive, whatever the test before has done."""
    started.wait_ready()
    return started


def kept(node: Container) -> dict[str, Any]:
    """What must not change while only the daemon does."""
    status = node.status()
    runs = {name: (c["pid"], c["instance"]) for name, c in status["components"].items()}
    return {**runs, "generation": status["groups"]["serve"]["generation"]}


def test_pid_1_is_small(node: Container) -> None:
    assert inside_comm(node) == "yrnode"
    status = Path(f"/proc/{node.init}/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0])
    threads = int(status.partition("Threads:")[2].split()[0])
    print(f"init: {resident / 1024:.1f} MiB resident")
    assert threads == 1
    assert resident < 20 * 1024


def inside_comm(node: Container) -> str:
    return node.enter("cat", "/proc/1/comm").strip()


def test_no_component_has_a_signal_blocked(node: Container) -> None:
    """The init blocks what it waits for, and a blocked TERM would be a stop by SIGKILL. Go blocks others itself."""
    pids = node.pids()
    assert {"etcd", "worker", "rank/serve/0"} <= set(pids)
    for name, pid in pids.items():
        status = node.enter("cat", f"/proc/{pid}/status")
        blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
        ours = SIGNALS if name == "rank/serve/0" else (signal.SIGTERM,)
        assert blocked & sum(1 << (number - 1) for number in ours) == 0, name


def test_a_killed_daemon_is_followed_by_another_and_nothing_else_changes(node: Container) -> None:
    before, old = kept(node), node.daemon()
    node.send_daemon(signal.SIGKILL)
    took = node.wait_new_daemon(old, 60)
    node.wait("ready", lambda: node.status()["ready"], 60)
    print(f"killed: the next one answered after {took:.2f} s")
    assert kept(node) == before
    assert "was ended by SIGKILL: another one in 0.2 s" in node.text()


def test_a_hung_daemon_is_ended_and_followed_by_another(node: Container) -> None:
    before, old = kept(node), node.daemon()
    node.send_daemon(signal.SIGSTOP)
    took = node.wait_new_daemon(old, 60)
    node.wait("ready", lambda: node.status()["ready"], 60)
    print(f"hung: the next one answered after {took:.2f} s")
    assert kept(node) == before
    assert took > _WATCHDOG_S - 2
    assert "made no round" in node.text()


def test_usr1_is_an_upgrade(node: Container) -> None:
    before, old = kept(node), node.daemon()
    # as an operator does it, from inside
    node.enter("kill", "-USR1", "1")
    took = node.wait_new_daemon(old, 60)
    node.wait("ready", lambda: node.status()["ready"], 60)
    print(f"SIGUSR1: the next one answered after {took:.2f} s")
    assert kept(node) == before


def test_what_is_orphaned_is_reaped(node: Container) -> None:
    node.enter("sh", "-c", "(sleep 61 & sleep 62 & setsid sleep 63 &) >/dev/null 2>&1")
    orphans = node.wait("orphans", lambda: len(found := sleepers(node)) == 3 and found, 10)
    for proc in orphans:
        os.kill(proc.pid, signal.SIGKILL)
    node.wait("no orphan", lambda: not sleepers(node), 10)
    assert [p for p in node.children().values() if p.state == "Z"] == []


def sleepers(node: Container) -> list[Proc]:
    return [p for p in node.children().values() if p.comm == "sleep"]


def test_a_file_that_was_spoiled_costs_no_engines(node: Container) -> None:
    before, good = kept(node), node.config.read_text()
    pids = {pid for pid, _ in (v for v in before.values() if isinstance(v, tuple))}
    node.config.write_text(good + "\nno_such_key: 1\n")
    try:
        node.send_daemon(signal.SIGKILL)
        node.wait("two refusals", lambda: node.text().count("no_such_key") >= 2, 60)
        assert pids <= node.children().keys()
    finally:
        node.config.write_text(good)
    node.wait("ready", lambda: node.status()["ready"], 60)
    assert kept(node) == before


def test_stop_ends_everything_in_order_and_a_second_word_changes_nothing(node: Container) -> None:
    """Last of those with this node."""
    init = node.init
    began = time.monotonic()
    os.kill(init, signal.SIGTERM)
    node.wait("stop", lambda: '"closing"' in events_text(node), 10)
    os.kill(init, signal.SIGTERM)
    assert node.wait_end() == 0, node.tail()
    print(f"the ordered stop took {time.monotonic() - began:.1f} s")
    assert order_of_stops(node) == ["rank/serve/0", "worker", "etcd"]
    assert node.left() == []


def events_text(node: Container) -> str:
    return (node.home / "events.jsonl").read_text()


def order_of_stops(node: Container) -> list[str]:
    events = [json.loads(line) for line in events_text(node).splitlines()]
    closing = max(i for i, e in enumerate(events) if e["what"] == "closing")
    assert sum(e["what"] == "closing" for e in events) == 1
    return [e["target"] for e in events[closing:] if e["what"] == "rest"]


def test_a_bad_file_ends_the_container_at_once() -> None:
    text = cluster_text(ranks=1)
    node = Container(text + "\nno_such_key: 1\n")
    try:
        node.start()
        assert node.wait_end(20) == 2
        (line,) = node.tail().splitlines()
        assert "no_such_key" in line
    finally:
        node.close()


def test_a_stop_during_the_start_leaves_nothing() -> None:
    node = Container(cluster_text(ranks=1))
    try:
        node.start()
        node.wait("daemon", node.children, 10)
        os.kill(node.init, signal.SIGTERM)
        assert node.wait_end(30) == 0, node.tail()
        assert node.left() == []
    finally:
        node.close()


@pytest.mark.slow
def test_a_daemon_that_dies_in_the_stop_is_followed_by_one_that_goes_on() -> None:
    """A worker whose etcd is frozen takes its time, so that there is some."""
    node = Container(cluster_text(ranks=1))
    try:
        node.start()
        node.wait_ready()
        etcd = node.host_pid(node.pids()["etcd"])
        os.kill(etcd, signal.SIGSTOP)
        os.kill(node.init, signal.SIGTERM)
        node.wait("the worker's turn", lambda: node.component("worker").get("state") == "stopping", 30)
        node.send_daemon(signal.SIGKILL)
        assert node.wait_end(60) == 0, node.tail()
        assert "was ended by SIGKILL" in node.text()
        assert node.left() == []
    finally:
        node.close()
