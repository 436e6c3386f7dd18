"""What an operator does who puts a store back from a copy of its data."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.support.keys import etcd_url
from tests.support.node import BIN, YrNode


def etcdctl(*words: str) -> None:
    subprocess.run([str(BIN / "etcdctl"), *words], check=True, capture_output=True, timeout=30)


def copy_store(node: YrNode, copy: Path) -> None:
    etcdctl("--endpoints", etcd_url(node), "snapshot", "save", str(copy))


def put_back(node: YrNode, copy: Path) -> None:
    """etcd of this node, the only one, is down, its directory is made from the copy, and it starts on that."""
    data = node.home / "etcd"
    mark = (data / "yrnode.json").read_bytes()
    assert node.cli("stop", "etcd", "--yes").returncode == 0
    node.wait("etcd stopped", lambda: node.component("etcd")["state"] == "stopped")
    shutil.rmtree(data)
    text = node.config.read_text()
    address, port = (re.search(rf"{key}: ([0-9.]+)", text) for key in ("address", "peer_port"))
    assert address
    assert port
    first = f"http://{address[1]}:{port[1]}"
    etcdctl(
        *("snapshot", "restore", str(copy), "--data-dir", str(data), "--name", "n0"),
        *("--initial-cluster", f"n0={first}", "--initial-advertise-peer-urls", first),
    )
    (data / "yrnode.json").write_bytes(mark)
    assert node.cli("start", "etcd", "--yes").returncode == 0
