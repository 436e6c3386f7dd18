"""Full and read-only disks under a running node: reported with path and writer, nothing restarted, no crash."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.tmpfs import tmpfs
from yrnode.checks import disk
from yrnode.model.verdict import Verdict

MB = 1024**2


def fill(folder: Path) -> Path:
    """A file that takes what is left."""
    path = folder / "filler"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as f:
        while f.write(b"x" * MB):
            pass
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as f:
        while f.write(b"x" * 512):
            pass
    return path


def test_each_way_in_which_a_directory_cannot_be_written(tmp_path: Path) -> None:
    assert disk.probe("log_dir", tmp_path, "").verdict is Verdict.OK
    assert list(tmp_path.iterdir()) == []
    with tmpfs("64m") as folder:
        assert disk.probe("log_dir", folder, "").verdict is Verdict.OK
        filler = fill(folder)
        assert disk.probe("log_dir", folder, "worker writes 13.0 MB/s").evidence == (
            f"log_dir {folder} is full: 0.0 MB free; worker writes 13.0 MB/s"
        )
        assert disk.why_unwritable([folder]) == f"{folder} is full: 0.0 MB free"
        os.truncate(filler, filler.stat().st_size - MB // 2)
        assert disk.why_unwritable([folder]) == f"{folder} is full: 0.5 MB free", "no room for what a start writes"
        os.truncate(filler, filler.stat().st_size - 2 * MB)
        assert disk.why_unwritable([tmp_path, folder]) == ""
        assert list(folder.iterdir()) == [filler]
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        assert disk.probe("run_dir", folder, "").evidence == f"run_dir {folder} is on a read-only file system"
        assert disk.why_unwritable([folder]) == f"{folder} is full: 2.5 MB free"
    with tmpfs("64m,nr_inodes=66") as folder:
        for i in range(10):
            (folder / str(i)).touch()
        assert disk.probe("state_dir", folder, "").evidence == f"state_dir {folder} is full: 55 inodes free"
        assert disk.why_unwritable([folder]) == "", "there is still room for a record"
    gone = tmp_path / "gone"
    assert disk.probe("run_dir", gone, "").evidence.endswith("cannot be written: No such file or directory")
    assert disk.why_unwritable([gone]) == ""


def test_two_that_look_at_once_do_not_disturb_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    # the other one is done, and has removed the file, while this one still writes it
    monkeypatch.setattr(disk.os, "fsync", lambda fd: (fsync(fd), os.unlink(tmp_path / ".yrnode-probe")))
    assert disk.probe("run_dir", tmp_path, "").verdict is Verdict.OK
    assert disk.why_unwritable([tmp_path]) == ""


def test_who_writes_is_the_fastest_then_the_largest(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    device = disk.device_of(tmp_path)
    growth = disk.Growth()
    assert growth.writer(device) == ("", "")
    (a / "old").write_bytes(b"x" * 40 * MB)
    b.write_bytes(b"x" * MB)
    files = {"etcd": [a], "worker": [b, tmp_path / "none"]}
    growth.note(10.0, files)
    assert growth.writer(device) == ("etcd", "etcd holds 40 MB")
    b.write_bytes(b"x" * 5 * MB)
    growth.note(12.0, files)
    assert growth.writer(device) == ("worker", "worker writes 2.0 MB/s")
    assert growth.writer(0) == ("", "")


def reported(node: YrNode, check: str) -> str:
    found = node.status()["node_checks"][check]
    return found["evidence"] if found["verdict"] == "fail" else ""


def test_full_directories_and_a_removed_log_are_reported_and_restart_nothing(node: YrNode) -> None:
    before, names = node.pids(), ("state", "run", "log")
    log = node.dir / "log/etcd.log"
    log.unlink()
    fillers = [fill(node.dir / name) for name in names]
    try:
        evidence = node.wait(
            "report", lambda: (e := [reported(node, f"{n}_dir") for n in names]) and all(e) and e, 30
        )
        assert [e.split(": ")[0] for e in evidence] == [f"{n}_dir {node.dir / n} is full" for n in names]
        assert f"{log} of etcd was removed while it is written" in reported(node, "logs")
        assert node.pids() == before
        assert node.get("/livez")[0] == 200
    finally:
        for filler in fillers:
            filler.unlink()
    node.wait("recovery", lambda: not any(reported(node, f"{n}_dir") for n in names) and node.status()["ready"], 30)
    assert node.pids() == before
    told = {(e["what"], e["text"].split()[0]) for e in node.events() if e["target"] == "node"}
    assert told >= {(what, f"{n}_dir") for what in ("check-failed", "check-passed") for n in names}


def test_without_room_for_its_record_a_component_waits_and_is_not_given_up(node: YrNode) -> None:
    filler = fill(node.dir / "run")
    try:
        os.kill(node.pids()["rank/serve/0"], signal.SIGKILL)
        reason = node.wait(
            "waits", lambda: (r := node.component("rank/serve/0")["reason"]).count("is full") and r, 30
        )
        assert f"not started: {node.dir / 'run'} is full: 0.0 MB free" in reason
        assert node.component("rank/serve/0")["state"] == "cleaning"
        # a stop is carried out all the same
        assert node.cli("stop", "serve", "--yes").returncode == 0
        node.wait("stopped", lambda: node.component("rank/serve/0")["state"] == "stopped", 20)
        assert node.cli("start", "serve", "--yes").returncode == 0
    finally:
        filler.unlink()
    node.wait_ready(60)
    assert node.left()


def test_a_daemon_that_starts_over_a_full_disk_takes_over_what_runs(node: YrNode) -> None:
    before = node.pids()
    fillers = [fill(node.dir / name) for name in ("state", "run", "log")]
    node.kill()
    node.start()
    try:
        node.wait("adopted", lambda: node.status()["ready"], 30)
        assert node.pids() == before
        assert reported(node, "run_dir")
    finally:
        for filler in fillers:
            filler.unlink()
    node.wait("recovery", lambda: not reported(node, "run_dir"), 30)


def test_a_fresh_start_on_a_full_disk_is_refused() -> None:
    with yrnode(cluster_text(ranks=1), start=False) as node, tmpfs("65m") as folder:
        node.config.write_text(node.config.read_text().replace("./run", str(folder)))
        fill(folder)
        node.start()
        assert node.process is not None
        assert node.process.wait(30) == 2
        assert "disk full: 0 MB free" in node.tail()
