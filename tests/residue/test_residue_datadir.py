"""Whose an etcd data directory is: the rule, and a real etcd that holds one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.etcd import start_etcd
from yrnode.residue.datadir import OWNER, claim, why_foreign, why_locked


def used(path: Path, owner: str | None) -> Path:
    """A directory with etcd's data and this text of ownership."""
    (path / "member/snap").mkdir(parents=True)
    if owner is not None:
        (path / OWNER).write_text(owner)
    return path


def test_a_new_directory_is_claimed_and_then_ours(tmp_path: Path) -> None:
    data = tmp_path / "state/etcd"
    assert why_foreign(data, "c", "n0") == ""
    claim(data, "c", "n0")
    assert json.loads((data / OWNER).read_text()) == {"cluster": "c", "node": "n0"}
    assert data.stat().st_mode & 0o777 == 0o700
    (data / "member").mkdir()
    assert why_foreign(data, "c", "n0") == ""
    claim(data, "c", "n0")
    assert why_foreign(data, "c", "n0") == ""


CURE = "move it away, or set etcd.data_dir to another directory"


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (None, "was not made by yrnode"),
        ('{"cluster": "other", "node": "n0"}', "belongs to other/n0, not to c/n0"),
        ('{"cluster": "c", "node": "n1"}', "belongs to c/n1, not to c/n0"),
        ("", "yrnode.json is unreadable"),
        ("{", "yrnode.json is unreadable"),
        ("[]", "yrnode.json is unreadable"),
        ('{"cluster": "c"}', "yrnode.json is unreadable"),
        ("\udcff", "yrnode.json is unreadable"),
    ],
)
def test_data_of_others(tmp_path: Path, owner: str | None, why: str) -> None:
    data = used(tmp_path / "etcd", None)
    if owner is not None:
        (data / OWNER).write_bytes(os.fsencode(owner))
    found = why_foreign(data, "c", "n0")
    assert found.startswith(f"etcd data in {data}")
    assert why in found
    assert found.endswith(CURE)
    # nothing makes it ours afterwards
    claim(data, "c", "n0")
    assert why_foreign(data, "c", "n0") == found


def test_a_claim_without_data_is_worth_nothing(tmp_path: Path) -> None:
    # torn, or of another cluster whose data was removed
    (tmp_path / OWNER).write_text('{"cluster": "other", "no')
    assert why_foreign(tmp_path, "c", "n0") == ""
    claim(tmp_path, "c", "n0")
    (tmp_path / "member").mkdir()
    assert why_foreign(tmp_path, "c", "n0") == ""


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        claim(tmp_path / "file/etcd", "c", "n0")


def test_a_running_etcd_is_seen_and_a_dead_one_is_not(tmp_path: Path) -> None:
    assert why_locked(tmp_path / "none") == ""
    with start_etcd(tmp_path) as etcd:
        data = tmp_path / "data"
        assert why_locked(data) == f"etcd data in {data} is locked by another etcd; end that one first"
        assert why_foreign(data, "c", "n0").startswith(f"etcd data in {data} was not made by yrnode")
        etcd.freeze()
        assert why_locked(data) != ""
        etcd.kill()
        assert why_locked(data) == ""
        # looking held nothing back
        etcd.start()
