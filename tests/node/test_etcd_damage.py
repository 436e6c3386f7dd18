"""etcd without space, and with data that it cannot use: on the real parts, nothing but etcd is touched."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.beside import beside
from tests.support.etcd import ETCD_34, ETCD_35, encoded, post
from tests.support.node import BIN, YrNode, cluster_text, yrnode

pytestmark = pytest.mark.long

QUOTA = 16 * 1024**2
UNTOUCHED = ("worker", "rank/serve/0")
# a machine that is busy with other tests answers late, which is not what is looked at here
PATIENT = "checks: {worker.kv: {failures: 30}, rank.health: {failures: 30}, rank.canary: {failures: 9}}"


def text(args: str, binary: Path = ETCD_35) -> str:
    found = cluster_text(ranks=1, more=PATIENT, bin_=f", etcd: {binary}")
    return found.replace("etcd: {nodes: [n0],", f"etcd: {{nodes: [n0], args: {{{args}}},")


def url(node: YrNode) -> str:
    return f"http://127.0.0.1:{node.config.read_text().partition('client_port: ')[2].split(',')[0]}"


def fill(node: YrNode) -> str:
    """Put until etcd refuses; its words."""
    for _ in range(100):
        try:
            post(url(node), "kv/put", {"key": encoded("/fill"), "value": encoded(os.urandom(500_000))})
        except OSError as e:
            return str(e)
    raise AssertionError("etcd took all of it")


def refusal(node: YrNode) -> dict[str, Any] | None:
    return node.status().get("store", {}).get("refuses_writes")


def happened(node: YrNode, target: str, what: str) -> list[dict[str, Any]]:
    return [e for e in node.events() if (e["target"], e["what"]) == (target, what)]


def same(node: YrNode, before: dict[str, int], names: tuple[str, ...] = UNTOUCHED) -> bool:
    now = node.status()["components"]
    return all((now[n]["pid"], now[n]["state"]) == (before[n], "ready") for n in names)


@pytest.mark.parametrize(
    "binary", [pytest.param(ETCD_35, id="3.5"), pytest.param(ETCD_34, id="3.4", marks=pytest.mark.slow)]
)
def test_no_space_is_told_with_its_cure_and_restarts_nothing(binary: Path) -> None:
    if not binary.exists():
        pytest.skip(f"no {binary}")
    with yrnode(text(f"quota-backend-bytes: {QUOTA}", binary)) as node:
        node.wait_ready()
        before = node.pids()
        assert refusal(node) is None
        assert "database space exceeded" in fill(node)
        found = node.wait("the refusal", lambda: refusal(node), 20)
        assert re.fullmatch(r"alarm NOSPACE on member [0-9a-f]+", found["evidence"])
        assert [line.split()[2] for line in found["cure"]] == ["compact", "defrag", "alarm"]
        # it fails before, while there is still a little room
        full = r"alarm NOSPACE on member [0-9a-f]+, db 1[5-9]\.\d of 16 MB, writes refused"
        node.wait("the check", lambda: re.fullmatch(full, node.component("etcd")["checks"]["alarms"]["evidence"]), 20)
        assert node.component("etcd")["checks"]["alarms"]["failing"]
        shown = node.cli("status").stdout
        assert "REFUSES WRITES" in shown
        assert all(f"    {line}\n" in shown for line in found["cure"])
        assert node.status()["ready"], "it serves"
        assert same(node, before, ("etcd", *UNTOUCHED))

        # a rank that dies is ended at once; its group's next life waits for a store that takes it
        os.kill(before["rank/serve/0"], signal.SIGKILL)
        node.wait("the rank ended", lambda: node.component("rank/serve/0")["state"] == "stopped", 20)
        assert node.status()["groups"]["serve"]["generation"] == 1
        assert same(node, before, ("etcd", "worker"))

        # a worker that dies now could not register itself: it waits, and uses up none of its restarts
        os.kill(before["worker"], signal.SIGKILL)
        waits = node.wait("the worker waits", lambda: node.component("worker")["waiting_for"], 30)
        assert waits == ["store (refuses writes)"]
        assert node.component("worker")["generation"] == 1

        since = refusal(node)
        for line in found["cure"]:
            # Debian has etcdctl in a package of its own
            words = [str(BIN / "etcdctl"), *line.split()[1:]]
            subprocess.run(words, env={"PATH": os.defpath}, check=True, capture_output=True, timeout=20)
        assert node.status()["groups"]["serve"]["generation"] == 1
        node.wait("writes again", lambda: node.status()["store"]["refuses_writes"] is None, 20)
        node.wait_ready()
        assert node.status()["groups"]["serve"]["generation"] == 2
        assert since is not None
        assert since["since"] == found["since"]
        assert node.component("etcd")["checks"]["alarms"]["verdict"] == "ok"
        assert (node.pids()["etcd"], node.component("etcd")["generation"]) == (before["etcd"], 1)
        assert node.status()["groups"]["cache"]["generation"] == 1
        assert len(happened(node, "store", "refuses-writes")) == len(happened(node, "store", "takes-writes")) == 1
        assert happened(node, "store", "unavailable") == []


@pytest.mark.slow
def test_a_database_that_is_gone() -> None:
    with yrnode(text("snapshot-count: 10")) as node:
        node.wait_ready()
        before, data = node.pids(), node.dir / "state/etcd"
        for i in range(100):
            post(url(node), "kv/put", {"key": encoded(f"/k/{i}"), "value": encoded("x")})
        (data / "member/snap/db").unlink()
        left = {p.relative_to(data): p.read_bytes() for p in data.rglob("*.snap")}
        assert left
        os.kill(before["etcd"], signal.SIGKILL)
        node.wait("etcd given up", lambda: node.component("etcd")["state"] == "failed", 120)

        reason = node.component("etcd")["reason"]
        for words in ("data directory damaged: disk or power", "snapshot", str(data), "yrnode restart etcd"):
            assert words in reason
        assert "engines stay" in reason
        last = node.component("etcd")["last_failure"]
        assert (last["reason"], last["cause"]) == ("damaged", "data directory damaged: disk or power")
        starts = len(happened(node, "etcd", "start"))
        assert starts == 1 + 5
        assert same(node, before)
        assert not node.status()["ready"]
        # the directory is kept: what was in it is what is in it
        kept = {p.relative_to(data): p.read_bytes() for p in data.rglob("*.snap")}
        assert kept == left
        assert [p.name for p in data.parent.iterdir() if p.name.startswith("etcd")] == ["etcd"]
        # never a loop for ever
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert node.component("etcd")["state"] == "failed"
            assert same(node, before)
            time.sleep(0.2)
        assert len(happened(node, "etcd", "start")) == starts

        # what it says may be done works, at the price that it names
        data.rename(data.with_name("damaged"))
        assert node.cli("restart", "etcd", "--yes").returncode == 0
        node.wait("the cache's next life", lambda: node.status()["groups"]["cache"]["generation"] == 2, 60)
        node.wait_ready()
        assert same(node, before, ("rank/serve/0",))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock as a second etcd does, and keep it."""
    taken = open(path, "rb")  # noqa: SIM115  the thread closes it

    def hold(over: threading.Event) -> None:
        with taken:
            fcntl.flock(taken, fcntl.LOCK_EX)
            over.wait(120)

    with beside(hold):
        yield


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """What a kernel makes of a file system whose disk has failed."""
    for words in (["--bind", str(path), str(path)], ["-o", "remount,bind,ro", str(path)]):
        subprocess.run(["mount", *words], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


ROOT_MOUNTS = os.geteuid() == 0 and shutil.which("mount") is not None


def kill_etcd(node: YrNode, state: str) -> str:
    """Its reason once it has come to this state, without a start."""
    starts = len(happened(node, "etcd", "start"))
    os.kill(node.pids()["etcd"], signal.SIGKILL)
    node.wait(f"etcd {state}", lambda: (c := node.component("etcd"))["state"] == state and c["reason"], 60)
    # what cleaning finds it says within a second
    words = node.wait("words", lambda: (r := node.component("etcd")["reason"]) and "SIGKILL" not in r and r, 20)
    assert len(happened(node, "etcd", "start")) == starts
    assert str(node.dir / "state/etcd") in words
    assert "damaged" not in words
    return words


def test_data_that_is_locked_or_read_only_is_named_and_not_called_damaged() -> None:
    with yrnode(text("snapshot-count: 1000")) as node:
        node.wait_ready()
        before, data = node.pids(), node.dir / "state/etcd"
        # found before a start, and not tried again: only somebody else can change it
        cases = [(locked(data / "member/snap/db"), "is locked by another etcd; end that one first")]
        if ROOT_MOUNTS:
            cases.append((read_only(data / "member/snap"), "is on a read-only file system"))
        for case, words in cases:
            with case:
                assert words in kill_etcd(node, "failed")
                assert same(node, before)
                assert node.cli("check").returncode == 0, "a running node holds its own data"
            assert node.cli("restart", "etcd", "--yes").returncode == 0
            node.wait_ready()
            assert same(node, before)
        if ROOT_MOUNTS:
            # a whole directory is waited for, as with a full disk
            with read_only(data):
                assert "Read-only file system" in kill_etcd(node, "cleaning")
                assert same(node, before)
            node.wait_ready()
            assert same(node, before)
        assert node.status()["groups"]["cache"]["generation"] == 1


@pytest.mark.skipif(not ROOT_MOUNTS, reason="mounts a directory read-only")
def test_read_only_data_is_refused_before_the_start() -> None:
    with yrnode(text("snapshot-count: 1000"), start=False) as node:
        member = node.dir / "state/etcd/member"
        (member / "snap").mkdir(parents=True)
        (member.parent / "yrnode.json").write_text(f'{{"cluster": "t{os.getpid()}", "node": "n0"}}')
        with read_only(member / "snap"):
            done = node.cli("run")
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith("etcd.data_dir: ")
        assert "read-only" in line
