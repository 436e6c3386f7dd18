"""Files that an ended instance leaves."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from yrnode.residue.files import remove_shm, remove_stale


def test_files_folders_and_sockets_go_and_what_is_not_there_is_no_fault(tmp_path: Path) -> None:
    file, folder, sock = tmp_path / "liveness", tmp_path / "uds", tmp_path / "sock"
    file.write_text("x")
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/x").write_text("x")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(sock))
    kept = tmp_path / "kept"
    kept.write_text("x")
    stale = (file, folder, sock, tmp_path / "none", tmp_path / "none/deeper")
    remove_stale(stale)
    remove_stale(stale)
    assert list(tmp_path.iterdir()) == [kept]


def test_of_a_link_only_the_link_goes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("x")
    folder = tmp_path / "probe"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    link, broken = tmp_path / "uds", tmp_path / "broken"
    link.symlink_to(outside)
    broken.symlink_to(tmp_path / "none")
    remove_stale((link, folder, broken))
    assert (outside / "x").read_text() == "x"
    assert list(tmp_path.iterdir()) == [outside]


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OSError, match="Not a directory") as e:
        remove_stale((file / "below",))
    assert e.value.filename is not None


def test_no_shared_memory_no_scan() -> None:
    assert remove_shm([f"/dev/shm/yrnode-test-{os.getpid()}-none"]) == []
