"""The demo as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import BIN
from yrnode.process import table


def stacks() -> set[Path]:
    return set(Path("/tmp").glob("yrnode-demo-*"))


def once(*more: str, seconds: float = 110) -> dict[str, Any]:
    """What a good run reports."""
    argv = [str(BIN / "yrnode"), "demo", "--once", *more, "-o", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_once_proves_everything_and_leaves_nothing() -> None:
    before = stacks()
    result = once()
    assert result["ready"] is True
    assert result["ready_seconds"] < 25
    assert set(result["components"]) == {"etcd", "worker", "rank/serve/0", "rank/serve/1"}
    assert all(c["state"] == "ready" and c["ready_seconds"] > 0 for c in result["components"].values())
    assert result["verify"]["completion"] is True
    assert result["verify"]["external_cache_hits"] > 0
    assert result["left_over"] == []
    assert stacks() == before


def test_two_nodes_once() -> None:
    before = stacks()
    result = once("--nodes", "2", seconds=150)
    assert result["ready"] is True
    names = {"n0 etcd", "n0 worker", "n0 rank/serve/0", "n1 worker", "n1 rank/serve/1"}
    assert set(result["components"]) == names
    assert {c["state"] for c in result["components"].values()} == {"ready"}
    assert result["verify"]["completion"] is True
    assert result["left_over"] == []
    assert stacks() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--nodes", "0"), "from 1 to 16"), (("--nodes", "17"), "from 1 to 16"), (("--nodes", "x"), "invalid int")],
)
def test_a_number_of_nodes_that_cannot_be(words: tuple[str, ...], said: str) -> None:
    before = stacks()
    done = subprocess.run([str(BIN / "yrnode"), "demo", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert stacks() == before


def test_in_the_foreground_on_a_terminal_until_ctrl_c() -> None:
    before = stacks()
    ours, theirs = pty.openpty()
    child = subprocess.Popen([str(BIN / "yrnode"), "demo"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    text, deadline = "", time.monotonic() + 90
    config = None
    try:
        while time.monotonic() < deadline and child.poll() is None and " of demo: ready" not in text:
            try:
                text += os.read(ours, 65536).decode()
            except BlockingIOError:
                time.sleep(0.05)
        assert " of demo: ready" in text, text[-2000:]
        config = re.search(r"yrnode status --config (\S+)", text)[1]
        beside = subprocess.run([str(BIN / "yrnode"), "status", "--config", config], capture_output=True, check=False)
        assert beside.returncode == 0
        state = str(Path(config).parent / "state")
        child.send_signal(signal.SIGINT)
        while child.poll() is None and time.monotonic() < deadline:
            try:
                os.read(ours, 65536)
            except (BlockingIOError, OSError):
                time.sleep(0.05)
        assert child.wait(60) == 0
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.wait(60)
        os.close(ours)
    assert [p for p in table.scan() if table.marks(p.pid)[1] == state] == []
    assert stacks() == before


def test_a_daemon_that_dies_takes_its_children_with_the_demo() -> None:
    before = stacks()
    child = subprocess.Popen([str(BIN / "yrnode"), "demo"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    daemon = None
    while daemon is None and time.monotonic() < deadline:
        daemon = next((p for p in table.scan() if p.ppid == child.pid), None)
        time.sleep(0.02)
    assert daemon is not None
    new = stacks() - before
    state = str(new.pop() / "state")
    while not [p for p in table.scan() if table.marks(p.pid)[1] == state] and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(daemon.pid, signal.SIGKILL)
    assert child.wait(60) == 1
    assert [p for p in table.scan() if table.marks(p.pid)[1] == state and p.state not in "ZX"] == []
    assert stacks() == before


def test_flags_without_a_model_are_refused() -> None:
    done = subprocess.run(
        [str(BIN / "yrnode"), "demo", "--", "--max-model-len", "512"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--model" in done.stderr
