"""A real etcd for tests: one member or several on free ports, each with kill, stop, freeze and restart."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.certs import Certs

ETCD_35 = Path(sys.executable).with_name("etcd")
# what `make test` unpacks (tests/tools/debian_parts.sh), else what the system has
PARTS = Path(os.environ.get("YRNODE_TEST_PARTS", "/usr/bin"))
ETCD_34 = PARTS / "etcd"
_FAST = ("--heartbeat-interval=10", "--election-timeout=100", "--unsafe-no-fsync", "--logger=zap")
# members on busy cores must not take each other for dead
_SEVERAL = ("--heartbeat-interval=50", "--election-timeout=500", "--unsafe-no-fsync", "--logger=zap")


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


def post(
    url: str, path: str, body: Mapping[str, Any], timeout_s: float = 5, context: ssl.SSLContext | None = None
) -> dict[str, Any]:
    """POST to an etcd's gateway without the client under test. Raises OSError, with etcd's text for an HTTP error."""
    request = urllib.request.Request(f"{url}/v3/{path}", json.dumps(body).encode())
    secure = [urllib.request.HTTPSHandler(context=context)] if context else []
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *secure)
    try:
        with opener.open(request, timeout=timeout_s) as response:
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

    def __init__(
        self,
        directory: Path,
        binary: Path,
        extra: Sequence[str],
        client_port: int,
        peer_ports: Sequence[int],
        *,
        at: int = 0,
        certs: Certs | None = None,
    ) -> None:
        """The member number `at` of as many as there are `peer_ports`."""
        self.directory = directory
        scheme = "https" if certs else "http"
        self.url = f"{scheme}://127.0.0.1:{client_port}"
        self.log = directory / "etcd.log"
        self._context = certs.context if certs else None
        peers = {f"m{i}": f"{scheme}://127.0.0.1:{port}" for i, port in enumerate(peer_ports)}
        peer = peers[f"m{at}"]
        self.argv = [
            str(binary),
            f"--name=m{at}",
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={','.join(f'{name}={url}' for name, url in peers.items())}",
            *(_FAST if len(peers) == 1 else _SEVERAL),
            *(certs.flags if certs else ()),
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
        return post(self.url, path, body, timeout_s, self._context)

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
        """SIGSTOP: connections stay open and nothing answers, from the return on."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        # the signal is there at once; that the last thread has stopped is told to its parent
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

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
    certs: Certs | None = None,
) -> Iterator[Etcd]:
    """A running etcd with its data, log and working directory in `directory`; gone at exit, or an error.

    `extra` are more flags of etcd. Ports that are not given are picked free, again if somebody is faster.
    """
    given = None if client_port is None or peer_port is None else (client_port, peer_port)
    with start_etcds(directory, binary, 1, extra=extra, ports=given, certs=certs) as etcds:
        yield etcds[0]


@contextmanager
def start_etcds(
    directory: Path,
    binary: Path = ETCD_35,
    count: int = 3,
    *,
    extra: Sequence[str] = (),
    ports: Sequence[int] | None = None,
    certs: Certs | None = None,
) -> Iterator[list[Etcd]]:
    """The members of one cluster. `ports`: of the clients, then of the peers."""
    for attempts_left in (2, 1, 0):
        clients = ports or free_ports(2 * count)
        where = [directory / f"m{i}" if count > 1 else directory for i in range(count)]
        etcds = [Etcd(d, binary, extra, clients[i], clients[count:], at=i, certs=certs) for i, d in enumerate(where)]
        try:
            for etcd in etcds:
                etcd.start(wait=False)
            for etcd in etcds:
                etcd.wait_ready()
            break
        except RuntimeError:
            for etcd in etcds:
                etcd.kill()
            taken = any("address already in use" in etcd.log.read_text() for etcd in etcds)
            if ports or not attempts_left or not taken:
                raise
    try:
        yield etcds
    finally:
        for etcd in etcds:
            etcd.kill()
        for etcd in etcds:
            assert etcd.process is not None
            assert not Path(f"/proc/{etcd.process.pid}").exists(), "etcd outlived its test"
