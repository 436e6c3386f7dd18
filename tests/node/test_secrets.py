"""Secrets that are planted in the cluster file, and in requests, are in nothing that yrnode shows or keeps."""

from __future__ import annotations

import http.client
import json
import subprocess
import time

import pytest

from tests.support.etcd import free_port
from tests.support.node import BIN, YrNode, cluster_text, yrnode

pytestmark = pytest.mark.long

KEY, TOKEN, PASSWORD = "planted-key-51c8", "planted-token-9a07", "planted-password-33fe"
LINK = "planted-link-70d2"


def test_planted_secrets_are_shown_nowhere() -> None:
    env = f"{{HF_TOKEN: {TOKEN}, DB_PASSWORD: {PASSWORD}, MIRROR: 'http://me:{LINK}@127.0.0.1:9/x'}}"
    text = cluster_text(ranks=1, extra_args=f", api-key: {KEY}", more=f"env: {env}")
    with yrnode(text) as node:
        node.wait_ready()
        assert node.cli("verify").returncode == 0
        assert node.cli("drill", "kill", "rank/serve/0", "--yes", timeout=110).returncode == 0
        for verb in ("pause", "resume"):
            assert node.cli(verb, "serve", "--yes", "--why", "a test").returncode == 0
        post(node, f"/control/stop?token={TOKEN}")
        node.wait("refusal", lambda: any(e["what"] == "refused" for e in node.events()))
        node.wait_ready()
        told = shown(node)
    assert [name for name, text in told.items() for word in (KEY, TOKEN, PASSWORD, LINK) if word in text] == []
    assert "POST /control/stop by 127.0.0.1:" in told["/events?since=0"]
    assert "yrnode pause serve --yes --why" in told["/events?since=0"]
    assert "***" in told["render"]


def test_the_last_words_of_a_rank_that_refuses_a_flag() -> None:
    with yrnode(cluster_text(ranks=1, extra_args=f", apikey: {KEY}")) as node:
        node.wait("the refusal", lambda: node.status()["groups"].get("serve", {}).get("stage") == "failed")
        own = (node.dir / "log/rank-serve-0.log").read_text()
        told = shown(node, but="log/") | {"logs": node.cli("logs", "rank/serve/0").stdout, "etcd": kept(node)}
    assert f"--apikey {KEY}" in own
    assert [name for name, text in told.items() if KEY in text] == []
    for name in ("/status", "/events?since=0", "/", "status", "logs", "etcd"):
        assert "unrecognized arguments: --apikey ***" in told[name], name


def test_the_last_words_of_a_router_with_a_password_in_them() -> None:
    words = f"giving up on http://me:{LINK}@127.0.0.1:9/x with "
    argv = ["python", "-c", f"import os, sys; sys.exit({words!r} + os.environ['DB_PASSWORD'])"]
    own_env = f"env: {{DB_PASSWORD: {PASSWORD}}}"
    router = f"{{node: n0, kind: command, port: {free_port()}, health: /, argv: {json.dumps(argv)}, {own_env}}}"
    with yrnode(cluster_text(ranks=1, more=f"router: {router}")) as node:
        node.wait("its end", lambda: node.component("router").get("last_failure"))
        own = (node.dir / "log/router.log").read_text()
        told = shown(node, but="log/") | {"logs": node.cli("logs", "router").stdout}
    assert f"{words}{PASSWORD}" in own
    assert [name for name, text in told.items() for word in (LINK, PASSWORD) if word in text] == []
    for name in ("/status", "/events?since=0", "/", "logs"):
        assert "giving up on http://***@127.0.0.1:9/x with ***" in told[name], name


def kept(node: YrNode) -> str:
    """What yrnode has put into etcd."""
    port = node.config.read_text().partition("client_port: ")[2].partition(",")[0]
    ask = [str(BIN / "etcdctl"), f"--endpoints=127.0.0.1:{port}", "get", "--prefix", "/yrnode/"]
    return subprocess.run(ask, capture_output=True, text=True, timeout=20, check=True).stdout


def shown(node: YrNode, but: str = "*") -> dict[str, str]:
    """All that is told by yrnode, and all files that it and what it runs have written, but for the cluster file, and
    those in the folder `but`."""
    told = {path: node.get(path)[1] for path in ("/status", "/events?since=0", "/metrics", "/", "/cache")}
    told["/stream"] = stream(node)
    told |= {" ".join(w): node.cli(*w).stdout for w in (["render"], ["render", "-o", "json"], ["status"], ["events"])}
    assert all(told.values()), {name for name, text in told.items() if not text}
    # the daemon's own log is what the journal would get
    files = [p for kind in ("*.log*", "*.json*") for p in node.dir.rglob(kind) if p.is_file()]
    told |= {str(p): p.read_text(errors="replace") for p in files if but not in str(p.relative_to(node.dir))}
    assert str(node.output) in told
    return told


def stream(node: YrNode, seconds: float = 2.0) -> str:
    host, _, port = node.api.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        connection.request("GET", "/stream")
        response, end, found = connection.getresponse(), time.monotonic() + seconds, b""
        while time.monotonic() < end and found.count(b"\n\n") < 20:
            found += response.readline()
        return found.decode()
    finally:
        connection.close()


def post(node: YrNode, path: str) -> None:
    host, _, port = node.api.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        connection.request("POST", path, "{}", {"Authorization": f"Bearer {TOKEN}"})
        assert connection.getresponse().status == 405
    finally:
        connection.close()
