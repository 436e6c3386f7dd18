"""Servers that a canary does not fit, or that want to be asked in their own way: ready, and never restarted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import free_ports
from tests.support.node import YrNode, yrnode

KEY = "sk-do-not-show-0123456789"
HIDDEN = "sk-nobody-was-told-9876543"
# what the cluster file does not say: a key and a name that only the program knows
WRAPPER = f"""#!/bin/sh
case "$CASE" in
  hidden-key) export VLLM_API_KEY={HIDDEN} ;;
  hidden-name) set -- "$@" --served-model-name another ;;
esac
exec {sys.executable} -m yrnode.demo.engine "$@"
"""
REFUSED = {
    "hidden": "canary not authorised (HTTP 401)",
    "unnamed": "canary does not fit this server (HTTP 404",
    "pooling": "canary does not fit this server (HTTP 400",
}


def text(directory: Path) -> str:
    vllm = directory / "vllm"
    vllm.write_text(WRAPPER)
    vllm.chmod(0o755)
    words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x", "-days", "1"]
    pair = ["-keyout", f"{directory}/key.pem", "-out", f"{directory}/cert.pem"]
    subprocess.run(["openssl", "req", "-x509", *words, *pair], check=True, capture_output=True)
    tls = f"{{ssl-certfile: {directory}/cert.pem, ssl-keyfile: {directory}/key.pem, root-path: /v}}"
    etcd, peer, worker, api, *ports = free_ports(10)
    assert len({etcd, peer, worker, api, *ports}) == 10
    groups = {
        "argkey": f"args: {{api-key: {KEY}}}",
        "envkey": f"env: {{VLLM_API_KEY: {KEY}}}",
        "tls": f"args: {tls}",
        "hidden": "env: {CASE: hidden-key}",
        "unnamed": "env: {CASE: hidden-name}",
        "pooling": "args: {runner: pooling}",
    }
    lines = [
        f"  {name}: {{ranks: {{n0: 1}}, model: demo, port: {port}, devices: {{n0: [{port}]}}, {own}}}"
        for (name, own), port in zip(groups.items(), ports, strict=True)
    ]
    return f"""
cluster: refused
nodes: {{n0: {{address: 127.0.0.1}}}}
bin: {{vllm: {vllm}}}
etcd: {{nodes: [n0], client_port: {etcd}, peer_port: {peer}}}
datasystem: {{port: {worker}, shared_memory: 256MB, node_timeout: 5s, node_dead_timeout: 10s}}
checks: {{rank.canary: {{period: 500ms, timeout: 1s}}}}
api: {{listen: "127.0.0.1:{api}"}}
state_dir: ./state
run_dir: ./run
log_dir: ./log
groups:
""" + "\n".join(lines)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YrNode]:
    with yrnode(text(tmp_path_factory.mktemp("refused"))) as node:
        node.wait_ready()
        yield node


def test_all_become_ready_and_stay(node: YrNode) -> None:
    before = node.pids()
    until = time.monotonic() + 3
    node.wait("several canaries", lambda: time.monotonic() > until)
    assert node.pids() == before
    assert node.get("/readyz")[0] == 200
    assert {g["generation"] for name, g in node.status()["groups"].items() if name != "cache"} == {1}


@pytest.mark.parametrize("group", REFUSED)
def test_a_refusal_is_said_as_what_it_is(node: YrNode, group: str) -> None:
    canary = node.component(f"rank/{group}/0")["checks"]["canary"]
    assert canary["verdict"] == "unknown"
    assert canary["evidence"].startswith(REFUSED[group])
    assert "the server answers, no token was generated" in canary["evidence"]


@pytest.mark.parametrize("group", ["argkey", "envkey", "tls"])
def test_what_the_file_says_is_used(node: YrNode, group: str) -> None:
    assert node.component(f"rank/{group}/0")["checks"]["canary"]["verdict"] == "ok"


def test_no_key_is_shown(node: YrNode) -> None:
    shown = [node.get(path)[1] for path in ("/status", "/events?since=0", "/metrics", "/")]
    shown += [node.cli(*words).stdout for words in (("status",), ("render", "-o", "json"))]
    shown.append(node.output.read_text())
    assert all(shown)
    assert [s for s in shown if KEY in s or HIDDEN in s] == []
