"""Shared memory that outlives its instance: remembered until nobody maps it."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from yrnode.process import table
from yrnode.residue import holders, shm


@pytest.fixture
def segment() -> Iterator[Path]:
    path = Path(f"/dev/shm/psm_yrnode-test-{os.getpid()}")
    path.write_bytes(b"x" * 4096)
    yield path
    path.unlink(missing_ok=True)


def began() -> int:
    """As of an instance that started just now: what is older and hides its maps cannot map its files."""
    proc = table.read(os.getpid())
    assert proc is not None
    return proc.start_ticks


def test_what_is_still_mapped_is_remembered_and_goes_later(segment: Path, tmp_path: Path) -> None:
    with segment.open("r+b") as f, mmap.mmap(f.fileno(), 4096):
        assert shm.remove(tmp_path, [str(segment)], began()) == []
        assert shm.left(tmp_path) == {str(segment): began()}
        assert segment.exists()
    assert shm.remove(tmp_path) == [str(segment)]
    assert (segment.exists(), list(tmp_path.iterdir())) == (False, [])
    assert shm.remove(tmp_path) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"names": []}', '{"boot": "another", "names": {"/etc/x": 1}}'])
def test_a_damaged_memory_proves_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / shm.LEFT).write_text(content)
    assert shm.left(tmp_path) == {}


def test_only_what_it_was_told_ever_goes(segment: Path, tmp_path: Path) -> None:
    (tmp_path / shm.LEFT).write_text(json.dumps({"boot": table.boot_id(), "names": {"/dev/shm/psm_none": 1}}))
    assert shm.remove(tmp_path) == []
    assert segment.exists()


def test_a_folder_with_a_living_socket_or_a_lock_has_a_holder(tmp_path: Path) -> None:
    import fcntl
    import socket

    folder = tmp_path / "uds"
    assert holders.of(folder) == ""
    folder.mkdir()
    (tmp_path / "uds-other").mkdir()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(folder / "a"))
        assert holders.of(folder).startswith(f"pid {os.getpid()} (")
        assert holders.of(folder).endswith(f"has the socket {folder / 'a'}")
        assert holders.of(tmp_path / "uds-other") == ""
    assert holders.of(folder) == "", "its file is there, but it is dead"
    for lock in (fcntl.flock, fcntl.lockf):
        with (folder / "LOCK").open("w") as f:
            lock(f, fcntl.LOCK_EX)
            assert holders.of(folder).endswith(f"has locked {folder / 'LOCK'}")
        assert holders.of(folder) == ""
