"""An etcd as it is deployed: its data on a disk, each write synced, its own default heartbeat."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.etcd import Etcd, start_etcd

# what tests make faster is put back: the last word of a flag counts
DEFAULTS = ("--heartbeat-interval=100", "--election-timeout=1000", "--unsafe-no-fsync=false")
NOTE = "etcd syncs to disk and beats each 100 ms"


@contextlib.contextmanager
def deployed_etcd() -> Iterator[Etcd]:
    """Gone with its data at exit."""
    # /tmp may be memory
    where = Path(tempfile.mkdtemp(prefix="yrb-", dir="/var/tmp"))
    try:
        with start_etcd(where / "etcd", extra=DEFAULTS) as etcd:
            yield etcd
    finally:
        shutil.rmtree(where, ignore_errors=True)
