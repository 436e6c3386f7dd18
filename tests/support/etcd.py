"""A real etcd for tests: one member on free ports, with kill, stop, freeze and restart."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ETCD_35 = Path(sys.executable).with_name("etcd")
# what `make test` unpacks (tests/tools/debian_parts.sh), else what the system has
PARTS = Path(os.environ.get("YRNODE_TEST_PARTS", "/usr/bin"))
ETCD_34 = PARTS / "etcd"
_FAST = ("--heartbeat-interval=10", "--election-timeout=100", "--unsafe-no-fsync", "--logger=zap")
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """A port below the ephemeral range that nobody listens on now. Workers of one test run draw from parts of it."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 4
    low, high = 20000 + 3000 * worker, 20000 + 3000 * (worker + 1)
    for port in random.sample(range(low, high), 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {low} and {high}")


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[free_port()] = None
    return list(found)


def post(url: str, path: str, body: Mapping[str, Any], timeout_s: float = 5) -> dict[str, Any]:
    """POST to an etcd's gateway without the client under test. Raises OSError, with etcd's text for an HTTP error."""
    request = urllib.request.Request(f"{url}/v3/{path}", json.dumps(body).encode())
    try:
        with _NO_PROXY.open(request, timeout=timeout_s) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"{path}: HTTP {error.code} {error.read().decode(errors='replace')}") from None


def encoded(text: str | bytes) -> str:
    """Base64, as the gateway takes keys and values."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


class Etcd:
    """One member. `url` is its client URL, `process` the running one or the last one."""

    def __init__(self, directory: Path, binary: Path, extra: Sequence[str], client_port: int, peer_port: int) -> None:
        self.directory = directory
        self.url = f"http://127.0.0.1:{client_port}"
        self.log = directory / "etcd.log"
        peer = f"http://127.0.0.1:{peer_port}"
        self.argv = [
            str(binary),
            "--name=m0",
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=m0={peer}",
            *_FAST,
            *extra,
        ]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *, wait: bool = True, timeout_s: float = 20) -> None:
        """Start it on its data; with `wait`, return when it answers a linearizable read."""
        assert not self.running
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # Only this environment: an ETCD_* variable of the caller would configure it.
            self.process = subprocess.Popen(
                self.argv,
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.directory,
            )
        if wait:
            self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = 20) -> None:
        deadline = time.monotonic() + timeout_s
        while self.running and time.monotonic() < deadline:
            try:
                self.call("kv/range", {"key": "AA=="}, timeout_s=1)
                return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"etcd is not ready; its log ends:\n{self.log.read_text()[-2000:]}")

    def call(self, path: str, body: Mapping[str, Any], timeout_s: float = 5) -> dict[str, Any]:
        """See `post`."""
        return post(self.url, path, body, timeout_s)

    def kill(self) -> None:
        """SIGKILL, and gone on return."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and gone on return."""
        self._end(signal.SIGTERM)

    def restart(self, *, wait: bool = True) -> None:
        """SIGKILL and start again on the same data and ports."""
        self.kill()
        self.start(wait=wait)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self.process is not None
        assert self.process.poll() is None, "etcd has ended by itself"
        self.process.send_signal(number)

    def _end(self, number: int) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


@contextmanager
def start_etcd(
    directory: Path,
    binary: Path = ETCD_35,
    *,
    extra: Sequence[str] = (),
    client_port: int | None = None,
    peer_port: int | None = None,
) -> Iterator[Etcd]:
    """A running etcd with its data, log and working directory in `directory`; gone at exit, or an error.

    `extra` are more flags of etcd. Ports that are not given are picked free, again if somebody is faster.
    """
    picked = client_port is None or peer_port is None
    for attempts_left in (2, 1, 0):
        etcd = Etcd(directory, binary, extra, client_port or free_port(), peer_port or free_port())
        try:
            etcd.start()
            break
        except RuntimeError:
            etcd.kill()
            if not (picked and attempts_left and "address already in use" in etcd.log.read_text()):
                raise
    try:
        yield etcd
    finally:
        etcd.kill()
        assert etcd.process is not None
        assert not Path(f"/proc/{etcd.process.pid}").exists(), "etcd outlived its test"
