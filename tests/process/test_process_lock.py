"""One yrnode a node."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from yrnode.model.errors import UsageError
from yrnode.process import lock
from yrnode.process.lock import NodeLock


def test_a_second_one_is_refused_with_the_firsts_pid(tmp_path: Path) -> None:
    state = tmp_path / "new/state"
    before = len(os.listdir("/proc/self/fd"))
    with NodeLock(state):
        with pytest.raises(UsageError, match=rf"another yrnode \(pid {os.getpid()}\) runs this node from {state}"):
            NodeLock(state)
        assert len(os.listdir("/proc/self/fd")) == before + 1
    with NodeLock(state):
        assert (state / "yrnode.lock").read_text() == f"{os.getpid()}\n"
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_only_looks_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 30.0)
    (tmp_path / lock.NAME).touch()
    fd = os.open(tmp_path / lock.NAME, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    looking = threading.Timer(0.05, os.close, [fd])
    looking.start()
    with NodeLock(tmp_path):
        assert lock.held(tmp_path)
    looking.join()


HOLD = """
import sys
from pathlib import Path
from yrnode.process.lock import NodeLock
lock = NodeLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=f"pid {child.pid}"):
            NodeLock(tmp_path)
        child.kill()
        child.wait()
        with NodeLock(tmp_path):
            pass


def test_what_it_starts_does_not_hold_it_on(tmp_path: Path) -> None:
    with NodeLock(tmp_path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with NodeLock(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()
