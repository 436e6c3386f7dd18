"""A throw-away machine with a real systemd, and the real yrnode as its service."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import BIN, YrNode

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/tools/systemd_boot.sh"
UNIT = "yrnode.service"
_UNSUPPORTED = 77
_NEW_NET = 0x40000000
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Box:
    """`bind`: directories of the host that it sees and writes. The rest of it is a copy that vanishes."""

    def __init__(self, *bind: Path) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="yrbox-", dir="/tmp"))
        paths = dict.fromkeys(str(p) for p in (ROOT, Path(sys.base_prefix), *bind))
        env = {**os.environ, "YRNODE_BOX_BIND": " ".join(paths)}
        started = subprocess.run(
            [SCRIPT, "start", self.dir], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        if started.returncode:
            self.close()
            if started.returncode == _UNSUPPORTED:
                pytest.skip(started.stderr.strip())
            raise AssertionError(started.stderr)
        unshare = (self.dir / "pid").read_text().strip()
        self.init = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0]
        self._net = ThreadPoolExecutor(1, initializer=self.enter_net)

    def enter_net(self) -> None:
        """Move the calling thread, and it alone, into the machine's network."""
        with open(f"/proc/{self.init}/ns/net") as f:
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), _NEW_NET):
                raise OSError(ctypes.get_errno(), "setns")

    def in_net(self, function: Callable[[], Any]) -> Any:
        return self._net.submit(function).result(30)

    def run(self, *words: str, stdin: str = "", check: bool = True, timeout: float = 60) -> str:
        done = subprocess.run(
            [SCRIPT, "exec", self.dir, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        self.run("mkdir", "-p", os.path.dirname(path))
        self.run("tee", path, stdin=text)

    def systemctl(self, *words: str, check: bool = True) -> str:
        return self.run("systemctl", *words, check=check)

    def show(self, what: str) -> str:
        return self.systemctl("show", UNIT, "-P", what)

    def journal(self, *matches: str) -> list[dict[str, Any]]:
        self.run("journalctl", "--sync")
        lines = self.run("journalctl", "-u", UNIT, "-o", "json", "--no-pager", *matches).splitlines()
        return [json.loads(line) for line in lines]

    def processes(self) -> dict[int, int]:
        """Everything in the unit's control group, with its session."""
        group = self.run("cat", f"/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs", check=False).split()
        table = self.run("ps", "-eo", "pid=,sid=").splitlines()
        sessions = dict(map(int, line.split()) for line in table)
        return {int(p): sessions[int(p)] for p in group if int(p) in sessions}

    def close(self) -> None:
        if hasattr(self, "_net"):
            self._net.shutdown()
        subprocess.run([SCRIPT, "stop", self.dir], capture_output=True, timeout=60, check=False)
        with contextlib.suppress(FileNotFoundError):
            self.dir.rmdir()


class Service(YrNode):
    """yrnode as the service of a box, from the repository's own unit; a drop-in says where it is."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        try:
            self.box = Box(self.dir)
        except BaseException:
            super().close()
            raise
        self.box.write(f"/etc/systemd/system/{UNIT}", (ROOT / "systemd" / UNIT).read_text())
        self.drop_in("test", f"ExecStart=\nExecStart={BIN}/yrnode run --config {self.config}\nRestartSec=200ms")

    def drop_in(self, name: str, settings: str) -> None:
        self.box.write(f"/etc/systemd/system/{UNIT}.d/{name}.conf", f"[Service]\n{settings}\n")
        self.box.systemctl("daemon-reload")

    def get(self, path: str) -> tuple[int, str]:
        return self.box.in_net(lambda: super(Service, self).get(path))  # type: ignore[no-any-return]

    def tail(self) -> str:
        return self.box.run("journalctl", "-u", UNIT, "-n", "60", "-o", "cat", "--no-pager", check=False)

    def main(self) -> int:
        return int(self.box.show("MainPID"))

    def children(self) -> dict[int, int]:
        """Processes of components, by session; the daemon's own helpers come and go with it."""
        leaders = set(self.pids().values())
        return {pid: sid for pid, sid in self.box.processes().items() if sid in leaders}

    def wait_new_main(self, old: int, seconds: float = 20) -> int:
        """Until another daemon is active, and has taken over what serves."""

        def new() -> int:
            pid = self.main()
            return pid if pid not in (0, old) and self.box.show("ActiveState") == "active" else 0

        pid = self.wait("new daemon", new, seconds)
        self.wait("what serves taken over", lambda: self.status()["ready"], seconds)
        return pid

    @contextlib.contextmanager
    def under_requests(self) -> Iterator[list[str]]:
        """Completions one after another meanwhile; the list gets each one's answer: "ok", or what was wrong."""
        answers: list[str] = []
        over = threading.Event()
        port = re.findall(r"^    port: (\d+)$", self.config.read_text(), re.M)[0]
        url = f"http://127.0.0.1:{port}/v1/completions"
        body = json.dumps({"model": "demo", "prompt": "hello", "max_tokens": 4}).encode()

        def ask() -> None:
            self.box.enter_net()
            while not over.is_set():
                request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
                try:
                    with _OPEN(request, timeout=10) as response:
                        answers.append("ok" if json.load(response)["choices"] else "empty")
                except OSError as e:
                    answers.append(repr(e))
                time.sleep(0.02)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            self.wait("first answer", lambda: answers, 20)
            yield answers
        finally:
            over.set()
            thread.join(20)

    def close(self) -> None:
        self.box.close()
        super().close()
