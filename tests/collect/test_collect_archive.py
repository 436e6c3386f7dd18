"""An archive is whole or not there; what a source cannot give is said; everything is bounded."""

from __future__ import annotations

import errno
import json
import os
import stat
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from yrnode.collect import archive as archive_room
from yrnode.collect import gather as room
from yrnode.collect.archive import Archive
from yrnode.collect.gather import MANIFEST, Entry, Missing, Source, command, gather, tail
from yrnode.model.cover import Cover
from yrnode.model.errors import UsageError


def held(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        names = tar.getnames()
        assert all(name.startswith(f"{path.name.removesuffix('.tar.gz')}/") for name in names)
        return {name.partition("/")[2]: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]


def gathered(path: Path, *sources: Source, seconds: float = 20.0) -> tuple[list[Entry], dict[str, bytes]]:
    with Archive(path) as archive:
        entries = gather(archive, sources, Cover(["hush-hush"]), {"node": "n0"}, seconds)
        archive.finish()
    return entries, held(path)


@pytest.fixture(params=["nameless", "beside"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has files without a name, and one that has not."""
    if request.param == "beside":
        plain = os.open

        def opened(path: Any, flags: int, *more: Any, **others: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported", str(path))
            return plain(path, flags, *more, **others)

        monkeypatch.setattr(archive_room.os, "open", opened)


def test_it_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    old = os.umask(0)
    try:
        with Archive(path) as archive:
            archive.add("x", b"1")
            assert not path.exists()
            assert archive.finish() == path.stat().st_size
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert held(path) == {"x": b"1"}
    assert os.listdir(tmp_path) == ["a.tar.gz"]


def test_half_an_archive_is_none(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Archive(tmp_path / "a.tar.gz") as archive:
            archive.add("x", b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        Archive(path)
    path.unlink()
    with Archive(path) as archive:
        path.write_text("mine")
        with pytest.raises(UsageError, match="just been made"):
            archive.finish()
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["a.tar.gz"]
    with pytest.raises(UsageError, match="cannot be written"):
        Archive(tmp_path / "nowhere" / "a.tar.gz")


def fails(error: Exception) -> Callable[[], bytes]:
    def read() -> bytes:
        raise error

    return read


def test_what_is_missing_is_said_and_costs_nothing_else(tmp_path: Path) -> None:
    entries, files = gathered(
        tmp_path / "a.tar.gz",
        Source("good", lambda: b"token: hush-hush\n\xff"),
        Source("gone", (tmp_path / "gone").read_bytes),
        Source("none", fails(Missing("it is not here, with hush-hush"))),
        Source("broken", fails(ValueError("a fault of ours"))),
        Source("empty", lambda: b""),
    )
    assert set(files) == {"good", MANIFEST}
    assert files["good"] == "token: ***\n�".encode()
    why = {e.name: e.missing for e in entries}
    assert why["gone"].endswith("gone: No such file or directory")
    assert why["none"] == "it is not here, with ***"
    assert why["broken"] == "ValueError: a fault of ours"
    assert why["empty"] == "empty"
    manifest = json.loads(files[MANIFEST])
    assert manifest["node"] == "n0"
    assert {f["name"]: f["missing"] for f in manifest["files"]} == why
    assert b"hush" not in b"".join(files.values())


def test_one_that_hangs_is_left_behind(tmp_path: Path) -> None:
    stuck = threading.Event()
    try:
        began = time.monotonic()
        entries, files = gathered(
            tmp_path / "a.tar.gz",
            Source("stuck", lambda: b"x" if stuck.wait(60) else b""),
            *(Source(f"good{i}", lambda: b"x") for i in range(20)),
            seconds=1.0,
        )
        assert time.monotonic() - began < 10
    finally:
        stuck.set()
    assert {e.name: e.missing for e in entries if e.missing} == {"stuck": "not read within 1 s"}
    assert len(files) == 21


def test_all_of_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_BYTES", 250)
    entries, files = gathered(tmp_path / "a.tar.gz", *(Source(f"f{i}", lambda: b"x" * 100) for i in range(5)))
    assert len(files) == 3
    assert sum("left out" in e.missing for e in entries) == 3


def test_the_end_of_rotated_files(tmp_path: Path) -> None:
    old, new, gone = tmp_path / "x.log.1", tmp_path / "x.log", tmp_path / "x.log.2"
    old.write_text("".join(f"old {i}\n" for i in range(1000)))
    new.write_text("new 0\nnew 1\n")
    assert tail([gone, old, new], 10**6) == old.read_bytes() + new.read_bytes()
    data = tail([old, new], 100)
    assert data.endswith(b"old 999\nnew 0\nnew 1\n")
    first, second, *_ = data.splitlines()
    assert first == b"--- the beginning is left out"
    assert second.startswith(b"old 9"), "no half line"
    assert len(data) <= 100 + len(first) + 1
    with pytest.raises(Missing, match="not there"):
        tail([gone], 100)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Missing, match="no regular file"):
        tail([tmp_path / "pipe"], 100)


def test_a_programs_words(tmp_path: Path) -> None:
    assert command(["sh", "-c", "echo yes"], 10) == b"yes\n"
    assert command(["sh", "-c", "echo no; exit 1"], 10, (0, 1)) == b"no\n"
    for words, why in (
        (["yrnode-is-not-a-program"], "there is no yrnode-is-not-a-program here"),
        (["sh", "-c", "echo it broke >&2; exit 3"], "it broke"),
        (["sh", "-c", "exit 0"], "and no word"),
        (["sleep", "60"], "has not ended within 0.2 s"),
    ):
        with pytest.raises(Missing, match=why):
            command(words, 0.2 if words[0] == "sleep" else 10)
