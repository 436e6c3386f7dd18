"""The member that a write-ahead log names is the one that its etcd says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.etcd import ETCD_34, ETCD_35, encoded, start_etcd
from yrnode.residue import wal


@pytest.mark.parametrize("binary", [pytest.param(ETCD_35, id="3.5"), pytest.param(ETCD_34, id="3.4")])
def test_a_log_of_a_real_etcd(binary: Path, tmp_path: Path) -> None:
    if not binary.exists():
        pytest.skip(f"no {binary}")
    folder = tmp_path / "data/member/wal"
    assert wal.identity(folder) is None
    with start_etcd(tmp_path, binary) as etcd:
        header = etcd.call("maintenance/status", {})["header"]
        mine = int(header["cluster_id"]), int(header["member_id"])
        assert wal.identity(folder) == mine
        # a second file of the log: 64 MB each, 1 MB at a time
        value = encoded(b"x" * 1_000_000)
        for n in range(70):
            etcd.call("kv/put", {"key": encoded(f"/k{n % 2}"), "value": value})
        first, second = sorted(folder.glob("*.wal"))
    first.unlink()
    assert wal.identity(folder) == mine
    whole = second.read_bytes()[:4096]
    # as much of it as there is: never anything else than the truth, and never an error
    for size in range(0, 200):
        second.write_bytes(whole[:size])
        assert wal.identity(folder) in (None, mine)
    for at in range(0, 200):
        second.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        wal.identity(folder)
