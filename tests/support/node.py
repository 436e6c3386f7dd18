"""A real `yrnode run` for tests, in a short directory of its own, on free ports."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.etcd import free_port, free_ports
from yrnode.process import table

BIN = Path(sys.executable).parent
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class YrNode:
    """`dir` holds the cluster file and all that the daemon writes; `name`: its node, where the file has several."""

    def __init__(self, text: str, name: str = "", where: Path | None = None) -> None:
        # short: sockets live below it
        self.dir = where or Path(tempfile.mkdtemp(prefix="yrt-", dir="/tmp"))
        self.name = name
        self.config = self.dir / "cluster.yaml"
        self.config.write_text(text)
        self.output = self.dir / f"out{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.api = text.partition(f"{name}: " if name else "api: ")[2].partition('listen: "')[2].partition('"')[0]
        self.home = self.dir / (f"{name}/state" if name else "state")
        self._which = ("--config", str(self.config), *(("--node", name) if name else ()))

    def start(self, env: dict[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        """`prefix`: words before the command line, of a program that becomes what it is given."""
        with open(self.output, "ab") as out:
            self.process = subprocess.Popen(
                [*prefix, str(BIN / "yrnode"), "run", *self._which],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def cli(self, *words: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "yrnode"), *words, *self._which],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def get(self, path: str) -> tuple[int, str]:
        """HTTP status and body; (0, "") when nobody listens."""
        try:
            with _OPEN(f"http://{self.api}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return 0, ""

    def status(self) -> dict[str, Any]:
        code, body = self.get("/status")
        return json.loads(body) if code == 200 else {"ready": False, "components": {}, "groups": {}}

    def component(self, name: str) -> dict[str, Any]:
        return self.status()["components"].get(name, {})

    def pids(self) -> dict[str, int]:
        return {name: c["pid"] for name, c in self.status()["components"].items()}

    def events(self) -> list[dict[str, Any]]:
        return json.loads(self.get("/events?since=0")[1])

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """The first true value of the condition; fails with the daemon's last words at the deadline."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"yrnode ended ({self.process.returncode}) before {what}:\n{self.tail()}")
            time.sleep(0.02)
        raise AssertionError(f"no {what} within {seconds} s:\n{self.tail()}")

    def wait_ready(self, seconds: float = 90.0) -> dict[str, Any]:
        return self.wait("ready", lambda: (s := self.status())["ready"] and s, seconds)

    def tail(self) -> str:
        return self.output.read_text(errors="replace")[-3000:] if self.output.exists() else ""

    def left(self) -> list[str]:
        """Living processes that carry the mark of this directory."""
        home = str(self.home)
        return [str(p) for p in table.scan() if p.state not in "ZX" and table.marks(p.pid)[1] == home]

    def stop(self, seconds: float = 60.0) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL to the daemon alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
            if self.process.poll() is None:
                self.kill()
        home = str(self.home)
        for proc in table.scan():
            if table.marks(proc.pid)[1] == home:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(proc.pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)


def cluster_text(ranks: int = 2, extra_args: str = "", more: str = "", bin_: str = "") -> str:
    """The demo's cluster on free ports. `extra_args` goes into the group's args, `more` to the end of the file."""
    etcd, peer, worker, api = free_ports(4)
    rank = next(
        p for p in (free_port() for _ in range(50)) if all(p + i not in (etcd, peer, worker, api) for i in (0, 1))
    )
    return f"""
cluster: t{os.getpid()}
nodes: {{n0: {{address: 127.0.0.1}}}}
bin: {{vllm: [python, -m, yrnode.demo.engine]{bin_}}}
etcd: {{nodes: [n0], client_port: {etcd}, peer_port: {peer}}}
datasystem: {{port: {worker}, shared_memory: 256MB, node_timeout: 5s, node_dead_timeout: 10s}}
groups:
  serve:
    ranks: {{n0: {ranks}}}
    port: {rank}
    model: demo
    args: {{served-model-name: demo{extra_args}}}
    kv_connector: {{ascend_store: {{}}}}
api: {{listen: "127.0.0.1:{api}"}}
state_dir: ./state
run_dir: ./run
log_dir: ./log
{more}
"""


@contextlib.contextmanager
def yrnode(text: str, *, start: bool = True) -> Iterator[YrNode]:
    node = YrNode(text)
    try:
        if start:
            node.start()
        yield node
    finally:
        node.close()
