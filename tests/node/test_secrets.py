"""Secrets that are planted in the cluster file, and in requests, are in nothing that yrnode shows or keeps."""

from __future__ import annotations

import http.client
import time

import pytest

from tests.support.node import YrNode, cluster_text, yrnode

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


def shown(node: YrNode) -> dict[str, str]:
    """All that is told by yrnode, and all files that it and what it runs have written, but for the cluster file."""
    told = {path: node.get(path)[1] for path in ("/status", "/events?since=0", "/metrics", "/", "/cache")}
    told["/stream"] = stream(node)
    told |= {" ".join(w): node.cli(*w).stdout for w in (["render"], ["render", "-o", "json"], ["status"], ["events"])}
    assert all(told.values()), {name for name, text in told.items() if not text}
    # the daemon's own log is what the journal would get
    told |= {str(p): p.read_text(errors="replace") for p in node.dir.rglob("*.log*") if p.is_file()}
    told |= {str(p): p.read_text(errors="replace") for p in node.dir.rglob("*.json*") if p.is_file()}
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
