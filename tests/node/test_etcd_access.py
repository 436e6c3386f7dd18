"""A whole node whose etcd wants certificates and, after a while, a user: nothing restarts, and no secret is shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.certs import make_certs
from tests.support.etcd import post
from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.users import PASSWORD, enable_auth
from yrnode.process import table

pytestmark = pytest.mark.long


def test_certificates_and_a_user(tmp_path: Path) -> None:
    certs = make_certs(tmp_path)
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    given = f"tls: {{ca: {certs.ca}, cert: {certs.cert('server')}, key: {certs.key('server')}}}"
    given += f", auth: {{user: node, password_file: {secret}}}"
    worker = f"args: {{etcd_cert: {certs.cert('cn')}, etcd_key: {certs.key('cn')}}}"
    text = cluster_text(ranks=1).replace("etcd: {nodes: [n0],", f"etcd: {{nodes: [n0], {given},")
    text = text.replace("datasystem: {", f"datasystem: {{{worker}, ")
    with yrnode(text) as node:
        before = node.wait_ready()
        port = text.partition("client_port: ")[2].partition(",")[0]

        def call(path: str, body: Mapping[str, Any]) -> object:
            return post(f"https://127.0.0.1:{port}", path, body, 5, certs.context)

        enable_auth(call, "/yrnode/", "/datasystem/")
        node.wait("restarted worker", lambda: node.cli("restart", "worker", "--yes").returncode == 0)
        now = node.wait("new worker", lambda: (s := node.status())["ready"] and other(before, s) and s, 90)
        assert now["store"]["available"]
        assert now["components"]["etcd"]["pid"] == before["components"]["etcd"]["pid"]
        assert now["components"]["rank/serve/0"]["pid"] == before["components"]["rank/serve/0"]["pid"]
        assert_unseen(node)


def other(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return bool(now["components"]["worker"]["instance"] != before["components"]["worker"]["instance"])


def assert_unseen(node: YrNode) -> None:
    """The password stands in no command line, environment, answer or file of the node."""
    told = [node.get(path)[1] for path in ("/status", "/events?since=0", "/metrics", "/")]
    told += [node.cli(*words).stdout for words in (["render"], ["render", "-o", "json"], ["status"])]
    told += [node.tail(), *(p.read_text(errors="replace") for p in node.dir.rglob("*.log"))]
    told += [p.read_text(errors="replace") for p in node.dir.rglob("*.json*") if p.is_file()]
    for proc in table.scan():
        if table.marks(proc.pid)[1] == str(node.home):
            told += [Path(f"/proc/{proc.pid}/{what}").read_text(errors="replace") for what in ("cmdline", "environ")]
    assert all(told[:4])
    assert not [text for text in told if PASSWORD in text]
