"""What etcd makes of a damaged data directory, and how its death on it reads. Each version, on real files.

Findings: etcd itself repairs a torn last record of its log and lost snapshot files. It refuses a lost, cut or
overwritten database, and a log that is damaged in its middle. A lost first page of the database it survives or not,
as chance has it: the page is one of two copies.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.etcd import ETCD_34, ETCD_35, Etcd, start_etcd
from yrnode.components import etcd as component
from yrnode.model.cause import Cause, Reason
from yrnode.process.exit import Exit

KEYS = 100


@dataclass
class Lab:
    """An etcd that was killed, and a copy of its data as the kill left it."""

    etcd: Etcd
    whole: Path

    @property
    def data(self) -> Path:
        return self.etcd.directory / "data"


@pytest.fixture(scope="module", params=[ETCD_35, ETCD_34], ids=["3.5", "3.4"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if not request.param.exists():
        pytest.skip(f"no {request.param}")
    where = tmp_path_factory.mktemp("damage")
    with start_etcd(where / "etcd", request.param, extra=["--snapshot-count=10"]) as etcd:
        for i in range(KEYS):
            etcd.call("kv/put", {"key": base64.b64encode(b"k%d" % i).decode(), "value": "eHh4"})
        etcd.kill()
        found = Lab(etcd, where / "whole")
        shutil.copytree(found.data, found.whole)
        yield found


@pytest.fixture
def data(lab: Lab) -> Path:
    shutil.rmtree(lab.data)
    shutil.copytree(lab.whole, lab.data)
    lab.etcd.log.write_text("")
    return lab.data


def db(data: Path) -> Path:
    return data / "member/snap/db"


def last_log(data: Path) -> Path:
    return max((data / "member/wal").glob("*.wal"))


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as f:
        f.seek(start)
        f.write(content)


def no_database(data: Path) -> None:
    db(data).unlink()


def first_page(data: Path) -> None:
    overwrite(db(data), 0, bytes(4096))


def both_first_pages(data: Path) -> None:
    overwrite(db(data), 0, bytes(8192))


def all_but_the_first_pages(data: Path) -> None:
    overwrite(db(data), 8192, bytes(db(data).stat().st_size - 8192))


def short_database(data: Path) -> None:
    os.truncate(db(data), 6000)


def shorter_log(data: Path) -> None:
    """It is longer than what is written in it: the end is room."""
    os.truncate(last_log(data), last_log(data).stat().st_size - 10)


def torn_record(data: Path) -> None:
    """Its last record is not whole, and nothing follows."""
    written = len(last_log(data).read_bytes().rstrip(b"\0"))
    os.truncate(last_log(data), written - 10)


def middle_of_the_log(data: Path) -> None:
    overwrite(last_log(data), 2000, b"\xff" * 500)


def no_snapshot_files(data: Path) -> None:
    for path in (data / "member/snap").glob("*.snap"):
        path.unlink()


def empty_snapshot_files(data: Path) -> None:
    for path in (data / "member/snap").glob("*.snap"):
        path.write_bytes(b"")


def start(etcd: Etcd) -> Cause | None:
    """None when it answers, else the cause of its death."""
    etcd.start(wait=False)
    try:
        etcd.wait_ready()
        return None
    except RuntimeError:
        assert etcd.process is not None
        code = etcd.process.wait(10)
        return component.read_death(
            Exit(code=code), False, etcd.log.read_text().splitlines(), etcd.directory / "data"
        )
    finally:
        etcd.kill()


@pytest.mark.parametrize(
    "spoil", [no_database, both_first_pages, all_but_the_first_pages, short_database, middle_of_the_log]
)
def test_etcd_refuses_it_and_its_death_says_damaged(lab: Lab, data: Path, spoil: Callable[[Path], None]) -> None:
    spoil(data)
    # again and again: nothing heals by itself
    for _ in range(2):
        cause = start(lab.etcd)
        assert cause is not None
        assert (cause.reason, cause.text) == (Reason.DAMAGED, "data directory damaged: disk or power"), cause
        line, _, cure = cause.evidence.partition("; ")
        assert line
        assert "runtime error" not in line
        assert str(data) in cure
        assert "yrnode restart etcd" in cure


@pytest.mark.parametrize("spoil", [shorter_log, torn_record, no_snapshot_files, empty_snapshot_files])
def test_etcd_repairs_it_itself(lab: Lab, data: Path, spoil: Callable[[Path], None]) -> None:
    spoil(data)
    assert start(lab.etcd) is None


def test_one_of_the_two_first_pages(lab: Lab, data: Path) -> None:
    first_page(data)
    cause = start(lab.etcd)
    assert cause is None or cause.reason is Reason.DAMAGED


def only_reads(path: Path) -> None:
    os.chmod(path, 0o500 if path.is_dir() else 0o400)


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="drops a capability of root")
@pytest.mark.parametrize("where", ["", "member", "member/snap", "member/snap/db"])
def test_files_that_may_not_be_written_are_not_damaged(lab: Lab, data: Path, where: str) -> None:
    path = data / where
    mode, argv = path.stat().st_mode, lab.etcd.argv
    only_reads(path)
    if os.geteuid() == 0:
        lab.etcd.argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *argv]
        os.chown(path, 65534, 65534)
    try:
        cause = start(lab.etcd)
    finally:
        lab.etcd.argv = argv
        os.chown(path, os.geteuid(), os.getegid())
        os.chmod(path, mode)
    assert cause is not None
    assert (cause.reason, "permission denied" in cause.evidence) == (Reason.START_FAILED, True), cause


def entry(level: str, msg: str, error: str = "") -> str:
    return json.dumps({"level": level, "msg": msg, **({"error": error} if error else {})})


@pytest.mark.parametrize(
    ("lines", "reason", "evidence"),
    [
        # what Go prints after it says less than etcd's own entry
        (
            [entry("panic", "failed to open database", "invalid database"), "panic: failed to open database"],
            Reason.DAMAGED,
            "failed to open database: invalid database",
        ),
        # the first panic is the cause, the later ones its echo
        (["panic: freepages: failed", "panic: runtime error: invalid memory"], Reason.DAMAGED, "panic: freepages"),
        (["unexpected fault address 0x7f", "fatal error: fault"], Reason.DAMAGED, "fatal error: fault"),
        ([entry("fatal", "discovery failed", "walpb: crc mismatch")], Reason.DAMAGED, "crc mismatch"),
        (
            [
                entry(
                    "panic",
                    "tocommit(9) is out of range [lastIndex(3)]. Was the raft log corrupted, truncated, or lost?",
                )
            ],
            Reason.DAMAGED,
            "tocommit(9)",
        ),
        ([entry("fatal", "discovery failed", "wal: open: no space left on device")], Reason.EXITED, "no space left"),
        (
            [entry("fatal", "cannot access data directory", "open .touch: read-only file system")],
            Reason.EXITED,
            "read-only",
        ),
        (
            [entry("error", "failed to serve: unexpected EOF"), entry("fatal", "listen failed")],
            Reason.EXITED,
            "listen",
        ),
    ],
)
def test_last_words(lines: list[str], reason: Reason, evidence: str) -> None:
    cause = component.read_death(Exit(code=2), True, lines, Path("/data"))
    assert cause.reason is reason
    assert cause.evidence.startswith(evidence) or evidence in cause.evidence
    assert ("/data" in cause.evidence) == (reason is Reason.DAMAGED)


def test_the_test_reads_what_etcd_wrote(lab: Lab, data: Path) -> None:
    """The whole data starts: what the others see comes from the damage."""
    lab.etcd.start()
    try:
        body = {"key": "AA==", "range_end": "AA==", "count_only": True}
        assert lab.etcd.call("kv/range", body)["count"] == str(KEYS)
    finally:
        lab.etcd.kill()
    assert subprocess.run([lab.etcd.argv[0], "--version"], capture_output=True, check=True).stdout
