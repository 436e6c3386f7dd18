"""A whole node whose client of etcd is the etcd3 package: it works, and no component sees how that was imported."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.node import cluster_text, yrnode
from yrnode.process import table
from yrnode.store.etcd3_backend import SWITCHES

pytestmark = pytest.mark.long


def test_a_node_on_the_etcd3_package() -> None:
    text = cluster_text(ranks=1).replace("etcd: {nodes: [n0],", "etcd: {nodes: [n0], client: etcd3,")
    with yrnode(text) as node:
        before = node.wait_ready()["components"]
        os.kill(before["etcd"]["pid"], signal.SIGKILL)

        def healed() -> bool:
            now = node.status()
            return bool(
                now["ready"]
                and now["store"]["available"]
                and now["components"]["etcd"]["pid"] != before["etcd"]["pid"]
            )

        node.wait("etcd and its client are back", healed, 60)
        after = node.status()["components"]
        assert {n: c["pid"] for n, c in after.items() if n != "etcd"} == {
            n: c["pid"] for n, c in before.items() if n != "etcd"
        }
        carriers = [p.pid for p in table.scan() if table.marks(p.pid)[1] == str(node.home)]
        environments = [Path(f"/proc/{pid}/environ").read_text(errors="replace") for pid in carriers]
        assert len(environments) >= 3
        assert not [name for name in SWITCHES for text in environments if f"{name}=" in text]
