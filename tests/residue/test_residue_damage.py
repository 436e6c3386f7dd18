"""Every file that a daemon keeps, damaged in every way, under a node that runs: it starts and loses nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.support.node import YrNode

RECORDS = ("run/etcd.json", "run/worker.json", "run/rank-serve-0.json")
MEMORY = (
    "state/groups/serve.json",
    "state/wishes.json",
    "state/events.jsonl",
    "state/yrnode.lock",
    "run/left-shm.json",
)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes() if path.is_file() else b"{}"
    if path.is_dir():
        shutil.rmtree(path)
    match how:
        case "nothing":
            path.write_bytes(b"")
        case "half":
            path.write_bytes(content[: len(content) // 2])
        case "types":
            keys = (*re.findall(rb'"(\w+)": ', content), b"unwanted", b"names")
            path.write_text(json.dumps({key.decode(): [None] for key in keys}))
        case "noise":
            path.write_bytes(os.urandom(4096))
        case "folder":
            path.unlink(missing_ok=True)
            path.mkdir()
            (path / "x").touch()
        case "link":
            path.unlink(missing_ok=True)
            path.symlink_to(path.name)


SLOW = [pytest.param(how, marks=pytest.mark.slow) for how in ("half", "noise", "link")]


@pytest.mark.parametrize("how", ["nothing", "types", "folder", *SLOW])
def test_a_daemon_starts_over_damaged_files_and_every_component_keeps_its_pid(node: YrNode, how: str) -> None:
    before = node.pids()
    node.kill()
    for name in (*RECORDS, *MEMORY):
        # a lock whose path is no file is refused: see below
        if not (name.endswith(".lock") and how in ("folder", "link")):
            damage(node.dir / name, how)
    node.start()
    node.wait("adopted", lambda: node.status()["ready"], 60)
    assert node.pids() == before
    told = [e["text"] for e in node.events() if e["what"] == "record"]
    for name in RECORDS:
        assert any(name in text for text in told), f"nothing was said of {name}: {told}"
    assert (node.dir / "state/events.jsonl").is_file()
    assert "Traceback" not in node.output.read_text(errors="replace")


def test_a_lock_that_cannot_be_opened_is_one_line(node: YrNode) -> None:
    node.kill()
    lock = node.dir / "state/yrnode.lock"
    lock.unlink()
    lock.mkdir()
    node.start()
    assert node.process is not None
    assert node.process.wait(30) == 2
    assert f"{lock} cannot be opened: Is a directory" in node.tail()
    lock.rmdir()
    node.start()
    node.wait_ready()
