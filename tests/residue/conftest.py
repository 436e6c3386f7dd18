"""One real node for the tests that damage its files and fill its disks; each leaves it ready."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.tmpfs import mounted


@pytest.fixture(scope="package")
def node() -> Iterator[YrNode]:
    """Each of its directories is on a file system of its own. etcd's too: it ends itself when it finds no room."""
    text = cluster_text(ranks=1).replace("etcd: {", "etcd: {data_dir: ./data/etcd, ")
    with yrnode(text, start=False) as found, contextlib.ExitStack() as stack:
        for name in ("state", "run", "log", "data"):
            (found.dir / name).mkdir()
            stack.enter_context(mounted(found.dir / name, "400m" if name == "data" else "80m"))
        found.start()
        found.wait_ready()
        yield found
        found.close()
