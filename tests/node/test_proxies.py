"""Proxies in every environment: nothing of ours goes through one, whatever the proxy does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import free_port
from tests.support.node import BIN, YrNode, cluster_text, yrnode
from tests.support.serving import check

pytestmark = pytest.mark.long

NAMES = [f(n) for n in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy") for f in (str.lower, str.upper)]
PAGE = b"<html>Please log in to the proxy</html>"
ANSWERS = {
    "503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "html": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE),
    "hangs": b"",
}
# as the sample proxy does: a client that heeds the environment, in front of the rank
ROUTER = """
import http.server, sys, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.forward(None)
    def do_POST(self):
        self.forward(self.rfile.read(int(self.headers["Content-Length"])))
    def forward(self, body):
        request = urllib.request.Request(sys.argv[2] + self.path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            data = answer.read()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Recorder:
    """A proxy that notes who comes, answers as it is told, and forwards nothing."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.seen: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", free_port()))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        held = []
        while True:
            try:
                peer, _ = self._socket.accept()
                peer.settimeout(2)
                self.seen.append(peer.recv(200))
                if self.answer:
                    peer.sendall(self.answer)
                    peer.close()
                else:
                    held.append(peer)
            except TimeoutError:
                continue
            except OSError:
                return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(scope="module")
def proxies() -> Iterator[dict[str, Recorder]]:
    found = {name: Recorder(answer) for name, answer in ANSWERS.items()}
    yield found
    for recorder in found.values():
        recorder.close()


def everywhere(node: YrNode, urls: list[str]) -> dict[str, str]:
    """Each variable at one of these proxies, in env_from, in env and for the router; yrnode's own are returned."""
    own = {name: urls[i % len(urls)] for i, name in enumerate(NAMES)}
    script, router = node.dir / "set.sh", node.dir / "router.py"
    router.write_text(ROUTER)
    script.write_text("\n".join(f"export {name}={urls[(i + 1) % len(urls)]}" for i, name in enumerate(NAMES)) + "\n")
    third = {name: urls[(i + 2) % len(urls)] for i, name in enumerate(NAMES) if name.islower()}
    rank, port = node.config.read_text().partition("    port: ")[2].split()[0], free_port()
    argv = json.dumps(["python", str(router), str(port), f"http://127.0.0.1:{rank}"])
    own_env = f"health: /health, env: {json.dumps(third)}"
    node.config.write_text(
        node.config.read_text()
        + f"env_from: [{script}]\nenv: {json.dumps(third)}\n"
        + f"router: {{node: n0, kind: command, argv: {argv}, port: {port}, {own_env}}}\n"
        + "checks: {rank.cache: {period: 1s}, rank.canary: {period: 1s}, router.completion: {period: 1s}}\n"
    )
    return own


def works(node: YrNode, own: dict[str, str]) -> None:
    node.start(own)
    node.wait_ready()
    before = node.pids()
    for component, names in (("worker", ["kv", "key", "ring"]), ("etcd", ["read", "write"]), ("router", ["health"])):
        assert {check(node, name, component)[0] for name in names} == {"ok"}
    node.wait("a completion through the router", lambda: check(node, "completion", "router")[0] == "ok", 20)
    node.wait("a hit", lambda: " 0 tokens" not in (c := check(node, "cache"))[1] and c[0] == "ok", 20)
    told = [
        subprocess.run(
            [str(BIN / "yrnode"), *words, "--config", str(node.config)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **own},
        )
        for words in (("status",), ("verify",), ("check",), ("events",))
    ]
    assert [done.returncode for done in told] == [0, 0, 0, 0], [done.stderr for done in told]
    dropped = "proxy variables of yrnode's own environment are dropped for etcd, worker: "
    assert dropped + ", ".join(sorted(NAMES)) in told[2].stdout
    assert "rank/serve/0 has a proxy (" in told[2].stdout
    assert node.pids() == before
    assert [e for e in node.events() if e["what"] in ("stop", "bump", "unavailable")] == []


def environ(pid: int) -> dict[str, str]:
    pairs = (x.partition("=") for x in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return {name: value for name, _, value in pairs}


@pytest.mark.slow
def test_nothing_goes_through_a_proxy_and_ranks_keep_theirs(proxies: dict[str, Recorder]) -> None:
    with yrnode(cluster_text(), start=False) as node:
        works(node, everywhere(node, [p.url for p in proxies.values()]))
        for name, pid in node.pids().items():
            env = environ(pid)
            assert {"127.0.0.1", "localhost", "::1"} <= set(env["no_proxy"].split(","))
            assert env["NO_PROXY"] == env["no_proxy"]
            assert bool([n for n in NAMES if n in env]) is (name.startswith("rank/") or name == "router")
    assert {name: p.seen for name, p in proxies.items()} == {name: [] for name in proxies}


def test_a_proxy_that_is_not_there() -> None:
    with yrnode(cluster_text(), start=False) as node:
        works(node, everywhere(node, [f"http://127.0.0.1:{free_port()}"]))


def test_the_recorder_records(proxies: dict[str, Recorder]) -> None:
    done = subprocess.run(
        ["python3", "-c", "import urllib.request as u; print(u.urlopen('http://127.0.0.1:1/x', timeout=5).read())"],
        env={"PATH": os.environ["PATH"], "http_proxy": proxies["html"].url},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert "log in" in done.stdout
    assert proxies["html"].seen.pop().startswith(b"GET http://127.0.0.1:1/x")
