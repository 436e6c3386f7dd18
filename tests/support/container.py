"""`yrnode run --init` as PID 1 of a PID namespace, as in a container; network and files are the host's."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.node import BIN, YrNode
from yrnode.process import table


class Container(YrNode):
    """`more`: further words for `yrnode run --init`. Skips where namespaces cannot be made."""

    more: tuple[str, ...] = ()

    def start(self, env: dict[str, str] | None = None, prefix: object = ()) -> None:
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            pytest.skip("a PID namespace needs root and unshare")
        words = (str(BIN / "yrnode"), "run", "--init", *self.more, *self._which)
        with open(self.output, "ab") as out:
            self.process = subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    @property
    def init(self) -> int:
        """The host's pid of PID 1."""
        assert self.process is not None
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(self.wait("PID 1", lambda: task.read_text().split(), 10)[0])

    def children(self) -> dict[int, table.Proc]:
        """Those of PID 1, by their pids inside."""
        init = self.init
        found = (p for p in table.scan() if p.ppid == init)
        return {inside(p.pid): p for p in found}

    def daemon(self) -> int:
        """Its pid inside: it holds the lock. 0 where none does."""
        text = (self.home / "yrnode.lock").read_text().strip() if (self.home / "yrnode.lock").exists() else ""
        pid = int(text or 0)
        proc = self.children().get(pid)
        return pid if proc is not None and proc.state not in "ZX" else 0

    def host_pid(self, pid: int) -> int:
        """The host's pid of a process inside."""
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        for proc in table.scan():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{proc.pid}/ns/pid") == space and inside(proc.pid) == pid:
                    return proc.pid
        raise AssertionError(f"no process {pid} inside")

    def send_daemon(self, number: int) -> None:
        os.kill(self.children()[self.daemon()].pid, number)

    def wait_new_daemon(self, old: int, seconds: float) -> float:
        """Seconds until another daemon's API answers."""
        began = time.monotonic()
        self.wait("another daemon", lambda: self.daemon() not in (0, old) and self.get("/livez")[0] == 200, seconds)
        return time.monotonic() - began

    def enter(self, *words: str) -> str:
        argv = ["nsenter", f"--target={self.init}", "--pid", "--mount", "--", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout

    def text(self) -> str:
        """All that the init and its daemons have said."""
        return self.output.read_text(errors="replace")

    def stop(self, seconds: float = 60.0) -> int:
        """SIGTERM to PID 1, and the exit code."""
        os.kill(self.init, signal.SIGTERM)
        return self.wait_end(seconds)

    def wait_end(self, seconds: float = 60.0) -> int:
        assert self.process is not None
        return self.process.wait(seconds)


def inside(pid: int) -> int:
    """The pid that a process has in its own namespace, 0 where it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(next(line for line in text.splitlines() if line.startswith("NSpid:")).split()[-1])
