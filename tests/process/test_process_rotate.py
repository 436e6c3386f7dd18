"""A component's output is bounded while it is written: little is lost, and on a full disk room is made first."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.lab import until
from tests.support.tmpfs import tmpfs
from yrnode.process import tail
from yrnode.process.rotate import TAIL_BYTES, Rotated, rotate, rotations, unlinked, used

KB = 1024
WRITER = """
import os, sys, time
for i in range(int(sys.argv[1])):
    os.write(1, b"line %07d %s\\n" % (i, b"x" * 80))
    if i % 500 == 0:
        time.sleep(0.0036)  # at most 13 MB/s, what a worker without etcd writes
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "etcd.log"


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of 1 MB."""
    with tmpfs("1m") as folder:
        yield folder


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_what_is_small_or_not_there_or_no_file_is_left_alone(tmp_path: Path, log: Path) -> None:
    assert rotate(log, 10) is None
    log.write_bytes(b"123456789")
    assert rotate(log, 10) is None
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "folder", "loop"):
        assert rotate(tmp_path / name, 0) is None
    assert names(tmp_path) == ["etcd.log", "folder", "loop", "pipe"]


def test_the_newest_part_is_number_one_and_the_oldest_goes(log: Path) -> None:
    for i in range(6):
        log.write_bytes(b"%d" % i * 5000)
        assert rotate(log, 4096, keep=3) == Rotated(log, 5000)
        assert log.read_bytes() == b""
    assert [p.name for p in rotations(log)] == ["etcd.log.3", "etcd.log.2", "etcd.log.1"]
    assert [p.read_bytes()[:1] for p in rotations(log)] == [b"3", b"4", b"5"]
    assert (log.stat().st_mode, len(names(log.parent))) == ((log.parent / "etcd.log.1").stat().st_mode, 4)


def test_parts_beyond_a_smaller_bound_go_and_other_files_stay(log: Path) -> None:
    for name in ("etcd.log.1", "etcd.log.2", "etcd.log.9", "etcd.log.x", "etcd.log.-1", "etcd.log.gz", "other.log.1"):
        log.with_name(name).write_text(name)
    log.write_bytes(b"x" * 5000)
    assert rotate(log, 4096, keep=2) is not None
    assert names(log.parent) == [
        "etcd.log", "etcd.log.-1", "etcd.log.1", "etcd.log.2", "etcd.log.gz", "etcd.log.x", "other.log.1",
    ]  # fmt: skip
    assert log.with_name("etcd.log.2").read_text() == "etcd.log.1"


def test_a_running_writer_goes_on_and_loses_next_to_nothing(log: Path) -> None:
    count = 100_000
    with log.open("ab") as out:
        child = subprocess.Popen([sys.executable, "-S", "-c", WRITER, str(count)], stdout=out)
    done: list[Rotated] = []
    deadline = time.monotonic() + 60
    while child.poll() is None:
        assert time.monotonic() < deadline
        done += filter(None, [rotate(log, 512 * KB, keep=1000)])
        time.sleep(0.001)
    lines = b"".join(p.read_bytes() for p in [*rotations(log), log]).splitlines()
    whole = [int(x.split()[1]) for x in lines if x.startswith(b"line ") and len(x) == 93]
    assert len(done) >= 5
    assert whole == sorted(set(whole)), "in order, none twice"
    unexplained = (count - len(whole)) * 94 - sum(d.lost for d in done)
    assert unexplained < count * 94 / 20, f"{unexplained} bytes lost in {len(done)} rotations"


def test_a_writer_that_does_not_append_leaves_a_hole_that_is_neither_counted_nor_copied(log: Path) -> None:
    with log.open("wb", buffering=0) as out:
        out.write(b"a" * 300 * KB)
        assert rotate(log, 256 * KB) is not None
        out.write(b"b" * 100 * KB)
        assert log.stat().st_size == 400 * KB
        assert used(log.stat()) <= 104 * KB
        assert rotate(log, 256 * KB) is None, "400 KB long, but 100 KB big"
        out.write(b"b" * 200 * KB)
        assert rotate(log, 256 * KB) is not None
    one = log.with_name("etcd.log.1").read_bytes()
    assert one.lstrip(b"\0") == b"b" * 300 * KB
    assert len(one) < 310 * KB


def test_of_a_file_far_beyond_its_bound_whole_lines_of_the_end_are_kept(log: Path) -> None:
    lines = [b"line %06d" % i for i in range(100_000)]
    log.write_bytes(b"\n".join(lines) + b"\n")
    size = log.stat().st_size
    found = rotate(log, 128 * KB)
    kept = log.with_name("etcd.log.1").read_bytes().splitlines()
    assert kept == lines[-len(kept) :]
    assert 255 * KB < len(kept) * 12 <= 256 * KB
    assert found == Rotated(log, size, size - len(kept) * 12)


def test_one_endless_line_that_is_no_text_is_cut(log: Path) -> None:
    log.write_bytes(b"\xff\xc3(" * (50 * KB * KB // 3))
    found = rotate(log, KB * KB)
    assert found is not None
    assert log.stat().st_size == 0
    assert log.with_name("etcd.log.1").stat().st_size == 2 * KB * KB
    assert "�" in "".join(tail.instance_lines(log, "none"))


def test_room_is_made_before_the_copy(small: Path) -> None:
    log = small / "worker.log"
    log.with_name("worker.log.2").write_bytes(b"2" * 400 * KB)
    log.with_name("worker.log.1").write_bytes(b"1" * 200 * KB)
    log.write_bytes(b"0" * 300 * KB)
    assert rotate(log, 256 * KB) == Rotated(log, 300 * KB)
    assert names(small) == ["worker.log", "worker.log.1", "worker.log.2"], "only the oldest had to go"
    assert [p.read_bytes()[:1] for p in rotations(log)] == [b"1", b"0"]


def test_without_room_for_a_copy_the_end_is_kept(small: Path) -> None:
    log, other = small / "worker.log", small / "other"
    log.write_bytes(b"old\n" * 25 * KB + b"last words\n")
    with contextlib.suppress(OSError), other.open("wb", buffering=0) as out:
        while out.write(b"x" * 4096):
            pass
    assert os.statvfs(small).f_bavail == 0
    found = rotate(log, 64 * KB)
    assert found is not None
    assert log.stat().st_size == 0
    kept = log.with_name("worker.log.1").read_bytes()
    assert kept.startswith(b"--- yrnode: ")
    assert kept.endswith(b"last words\n")


def test_a_file_larger_than_what_memory_should_hold_is_emptied_with_its_last_part_kept() -> None:
    with tmpfs("8m") as folder:
        log = folder / "worker.log"
        log.write_bytes(b"x" * 7 * KB * KB + b"end\n")
        found = rotate(log, 4 * KB * KB)
        assert found is not None
        assert found.lost == found.bytes - TAIL_BYTES
        assert log.with_name("worker.log.1").read_bytes().endswith(b"xend\n")


def test_without_an_inode_for_a_copy_the_end_goes_and_the_file_is_emptied() -> None:
    with tmpfs("1m,nr_inodes=3") as folder:
        log = folder / "worker.log"
        log.write_bytes(b"x" * 300 * KB)
        (folder / "other").touch()
        assert rotate(log, 256 * KB) is not None
        assert names(folder) == ["other", "worker.log"]
        assert log.stat().st_size == 0


def test_on_a_read_only_file_system_nothing_changes() -> None:
    with tmpfs("1m") as folder:
        log = folder / "worker.log"
        log.write_bytes(b"x" * 300 * KB)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        assert rotate(log, 256 * KB) is None
        assert log.stat().st_size == 300 * KB


async def test_a_removed_file_that_is_still_written_is_seen_and_bounded(log: Path) -> None:
    with log.open("ab") as out:
        child = subprocess.Popen(["/bin/sh", "-c", "head -c 400000 /dev/zero; exec sleep 60"], stdout=out)
    try:
        await until(lambda: log.stat().st_size == 400_000)
        assert unlinked(child.pid, 256 * KB) is None, "its file is there"
        log.unlink()
        assert unlinked(child.pid, 512 * KB) == 400_000
        unlinked(child.pid, 256 * KB)
        assert unlinked(child.pid, 256 * KB) == 0
    finally:
        child.kill()
        child.wait()
    assert unlinked(child.pid) is None


def test_the_last_words_of_an_instance_are_found_over_a_rotation(log: Path) -> None:
    log.write_bytes(
        b"--- yrnode: etcd instance aa generation 1\nold\n--- yrnode: etcd instance bb generation 2\none\n"
    )
    assert rotate(log, 60) is not None
    with log.open("ab") as f:
        f.write(b"two\n")
    assert tail.instance_lines(log, "bb") == ["one", "two"]
