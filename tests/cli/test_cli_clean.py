"""`yrnode clean` on a real node: what lives is shown and left, what is dead goes, what is not proven stays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from yrnode.process import table
from yrnode.telemetry.event_file import NAME, read_events


def cli(node: YrNode, *words: str) -> tuple[int, str, str]:
    done = node.cli("clean", *words, timeout=60)
    return done.returncode, done.stdout, done.stderr


def clean(node: YrNode, *words: str) -> tuple[int, dict[str, Any]]:
    code, out, err = cli(node, "-o", "json", *words)
    assert out, err
    return code, json.loads(out)


def items(found: dict[str, Any], kind: str, verdict: str = "") -> list[dict[str, Any]]:
    return [i for i in found["items"] if i["kind"] == kind and verdict in ("", i["verdict"])]


def not_of_others(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Shared memory of whoever else runs tests on this host is not this node's."""
    return [i for i in found["items"] if i["owner"] or i["kind"] != "shared memory"]


@pytest.fixture(scope="module")
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(ranks=1)) as found:
        found.wait_ready()
        yield found


def shm_noted(node: YrNode) -> list[str]:
    return json.loads((node.dir / "run/rank-serve-0.json").read_text())["shm"]


def test_all_that_lives_is_in_use_and_stays(node: YrNode) -> None:
    node.wait("notes", lambda: shm_noted(node), 20)
    before = node.pids()
    _, found = clean(node, "--yes")
    assert found["daemon"] is True
    assert {i["owner"].split()[0] for i in items(found, "processes")} == set(before)
    assert {i["verdict"] for i in items(found, "processes") + items(found, "files")} == {"in use"}
    memory = [i for i in items(found, "shared memory") if i["owner"] == "rank/serve/0"]
    assert sorted(p for i in memory for p in i["paths"]) == sorted(shm_noted(node))
    assert all(i["verdict"] == "in use" for i in memory)
    assert not any(i["removed"] for i in found["items"])
    assert node.pids() == before
    assert node.status()["ready"]
    assert all(Path(p).exists() for p in shm_noted(node))


def test_what_a_dead_node_left_is_shown_then_asked_for_then_removed(node: YrNode) -> None:
    """All is killed at once: the worst that can happen short of a reboot."""
    noted = shm_noted(node)
    node.kill()
    for proc in [p for p in table.scan() if table.marks(p.pid)[1] == str(node.dir / "state")]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(proc.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while node.left():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # an orphan without a record, and one that only inherited the mark from a shell
    env = {**os.environ, "YRNODE_INSTANCE": "x", "YRNODE_HOME": str(node.dir / "state")}
    cluster = json.loads((node.dir / "run/etcd.json").read_text())["mark"].partition("/")[0]
    env["YRNODE_INSTANCE"] = f"{cluster}/n0/rank/gone/0/0123abcd"
    home = node.dir / "state/rank-gone-0"
    home.mkdir()
    orphan = subprocess.Popen(["sleep", "60"], env=env, cwd=home, start_new_session=True)
    shell = subprocess.Popen(["sh", "-c", "sleep 60; :"], cwd=home, start_new_session=True)
    heir = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], env={**env, "PATH": os.defpath}, cwd="/",
                            start_new_session=True, stdout=subprocess.PIPE)  # fmt: skip
    # a record that was set aside, and a stranger on a port
    (node.dir / "run/worker.json.unreadable-1").write_text("{")
    etcd_port = int(node.config.read_text().partition("client_port: ")[2].split(",")[0])
    try:
        with socket.create_server(("127.0.0.1", etcd_port)):
            code, found = clean(node, "--dry-run")
            assert (code, found["daemon"], found["dry_run"]) == (1, False, True)
            (port,) = items(found, "port")
            assert (port["verdict"], port["what"]) == ("not ours", f"127.0.0.1:{etcd_port} (etcd.client_port)")
            assert f"pid {os.getpid()} (" in port["owner"]
        (orphaned,) = items(found, "processes", "removable")
        assert (orphaned["owner"], orphaned["what"]) == ("rank/gone/0 instance 0123abcd", f"{orphan.pid} (sleep)")
        assert orphaned["age_s"] < 60
        assert orphaned["size"] > 0
        assert str(heir.pid) in items(found, "processes", "unknown")[0]["what"]
        memory = items(found, "shared memory", "removable")
        assert sorted(p for i in memory for p in i["paths"]) == sorted(noted)
        gone = {i["owner"]: i["paths"] for i in items(found, "files", "removable")}
        assert gone.keys() == {"worker", "rank/serve/0", "yrnode"}
        assert str(node.dir / "state/worker/liveness") in gone["worker"]
        assert orphan.poll() is None
        assert all(Path(p).exists() for paths in [*gone.values(), noted] for p in paths), "looking removes nothing"
        code, _, err = cli(node)
        assert (code, "add --yes" in err) == (2, True)
        code, found = clean(node, "--yes")
        removed = [i for i in found["items"] if i["removed"]]
        assert len(removed) == 1 + len(memory) + len(gone)
        assert orphan.wait(10) == -signal.SIGTERM
        assert not any(Path(p).exists() for paths in [*gone.values(), noted] for p in paths)
        assert code == 1, "the one that is not proven ours is still there"
        event = read_events(node.dir / "state" / NAME, 1)[0]
        assert (event.target, event.what) == ("yrnode", "operator-clean")
        assert f"removed processes {orphan.pid} (sleep)" in event.text
        assert (heir.poll(), shell.poll()) == (None, None)
    finally:
        for child in (orphan, shell, heir):
            for proc in table.scan():
                if proc.sid == child.pid:
                    os.kill(proc.pid, signal.SIGKILL)
            child.wait()
            if child.stdout:
                child.stdout.close()
    _, found = clean(node, "--yes")
    assert not_of_others(found) == [] or {i["kind"] for i in not_of_others(found)} <= {"logs", "shared memory"}


def test_etcd_data_of_another_cluster_is_moved_only_when_asked_for_and_meant(node: YrNode) -> None:
    """After the one above: nothing runs."""
    data = node.dir / "state/etcd"
    owner = data / "yrnode.json"
    kept = owner.read_text()
    owner.write_text('{"cluster": "other", "node": "n0"}')
    code, found = clean(node, "--yes")
    (item,) = items(found, "etcd data")
    assert (code, item["verdict"], item["removed"]) == (1, "not ours", False)
    assert "belongs to other/n0" in item["reason"]
    assert cli(node, "--move-etcd-data")[0] == 2
    assert data.is_dir()
    _, found = clean(node, "--move-etcd-data", "--yes")
    assert items(found, "etcd data")[0]["removed"] is True
    assert f"moved aside etcd data {data}" in read_events(node.dir / "state" / NAME, 1)[0].text
    (moved,) = data.parent.glob("etcd.moved-*")
    assert (moved / "member/snap/db").exists()
    assert not data.exists()
    moved.rename(data)
    owner.write_text(kept)


def test_a_daemon_ends_what_the_file_no_longer_has_and_clean_finds_it_before(node: YrNode) -> None:
    """A rank of a group that was taken out of the file still runs when the next daemon starts."""
    mark = json.loads((node.dir / "run/etcd.json").read_text())["mark"].partition("/")[0] + "/n0/rank/old/0/89abcdef"
    home = node.dir / "state/rank-old-0"
    home.mkdir()
    env = {"PATH": os.defpath, "YRNODE_INSTANCE": mark, "YRNODE_HOME": str(node.dir / "state")}
    old = subprocess.Popen(["sleep", "100"], env=env, cwd=home, start_new_session=True)
    try:
        _, found = clean(node, "--dry-run")
        assert items(found, "processes", "removable")[0]["what"] == f"{old.pid} (sleep)"
        node.start()
        assert old.wait(30) == -signal.SIGTERM
        node.wait_ready()
    finally:
        old.kill()
        old.wait()


def test_for_people(node: YrNode) -> None:
    code, out, _ = cli(node, "--dry-run")
    lines = out.splitlines()
    assert lines[0].split() == ["KIND", "VERDICT", "OWNER", "AGE", "SIZE", "WHAT"]
    assert any(line.startswith("processes") and "in use" in line and "etcd instance" in line for line in lines)
    assert code in (0, 1), "what others left in /dev/shm counts"
