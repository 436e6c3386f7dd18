"""What a later daemon takes for its own, and what it never does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.process.lab import Lab, gone, read_pid, until
from yrnode.process import atomic, record, table
from yrnode.process.adopt import adopt, from_marks
from yrnode.process.exit import Exit
from yrnode.process.record import Ident, Record

LIVE = "touch up; exec sleep 60"
# erases its environment as process titles do: the area is overwritten from within
ERASE = """
import ctypes, os, pathlib, time
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
pathlib.Path("up").touch()
time.sleep(60)
"""


def record_of(lab: Lab, name: str = "worker") -> Record:
    found = record.load(record.path_of(lab.owner.run_dir, name))
    assert found is not None
    return found


async def test_the_record_is_whole_after_a_start(lab: Lab) -> None:
    instance = await lab.started(LIVE)
    kept = record_of(lab)
    assert kept == instance.record
    proc = table.read(instance.pid)
    assert kept.main == kept.launched == Ident(proc.pid, proc.start_ticks)
    assert kept.began <= proc.start_ticks
    assert kept.boot == table.boot_id()


async def test_a_running_child_is_adopted_and_its_death_is_seen(lab: Lab) -> None:
    first = await lab.started(LIVE)
    seen: list[Exit] = []
    second = adopt(first.spec, record_of(lab), lab.owner, seen.append)
    assert second is not None
    assert second.pid == first.pid
    assert [m.pid for m in second.members()] == [first.pid]
    first.close()
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: seen)
    second.close()


async def test_a_child_that_died_meanwhile_is_an_unknown_exit(lab: Lab) -> None:
    first = await lab.started(LIVE)
    kept = record_of(lab)
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: lab.exits)
    seen: list[Exit] = []
    second = adopt(first.spec, kept, lab.owner, seen.append)
    assert second is not None
    await until(lambda: seen)
    assert seen == [Exit()]


async def test_nothing_is_adopted_from_another_boot_or_state_directory(lab: Lab) -> None:
    first = await lab.started(LIVE)
    kept = record_of(lab)
    for other in (replace(kept, boot="another"), replace(kept, home="/elsewhere")):
        assert adopt(first.spec, other, lab.owner, lab.exits.append) is None


async def test_a_reused_pid_is_not_ours_and_never_a_member(lab: Lab) -> None:
    """Forged: the record names a living stranger's pid, with other start ticks, or with the right ones."""
    first = await lab.started(LIVE)
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True, cwd="/")
    lab.note(stranger.pid)
    proc = table.read(stranger.pid)
    kept = replace(record_of(lab), mark="test/n0/worker/00000000")
    for ticks in (proc.start_ticks - 1, proc.start_ticks):
        forged = replace(kept, launched=Ident(stranger.pid, ticks), main=Ident(stranger.pid, ticks))
        seen: list[Exit] = []
        adopted = adopt(first.spec, forged, lab.owner, seen.append)
        assert adopted is not None
        await until(lambda seen=seen: seen)
        assert adopted.members() == []
        assert await adopted.stop(0.2, 0.2) == []
    assert table.alive(proc)


async def test_an_erased_environment_is_proven_by_session_directory_and_log(lab: Lab) -> None:
    first = await lab.started("", argv=(sys.executable, "-c", ERASE))
    assert table.marks(first.pid) == ("", "")
    seen: list[Exit] = []
    second = adopt(first.spec, record_of(lab), lab.owner, seen.append)
    assert second is not None
    assert second.main.exit is None
    assert second.pid == first.pid
    elsewhere = replace(first.spec, log=lab.home / "other.log")
    Path(lab.home / "other.log").touch()
    third = adopt(elsewhere, record_of(lab), lab.owner, seen.append)
    assert third is not None
    await until(lambda: seen)
    second.close()


async def test_a_daemon_that_died_between_record_and_start_leaves_nothing_to_adopt(lab: Lab) -> None:
    spec = lab.spec(LIVE)
    kept = Record("worker", "abc", 1, "test/n0/worker/abc", str(lab.home), table.boot_id(), 0)
    assert adopt(spec, kept, lab.owner, lab.exits.append) is None


async def test_a_daemon_that_died_just_after_the_start_leaves_an_orphan_with_a_known_mark(lab: Lab) -> None:
    first = await lab.started(LIVE)
    kept = replace(record_of(lab), launched=None, main=None)
    second = adopt(first.spec, kept, lab.owner, lab.exits.append)
    assert second is not None
    assert second.pid == first.pid
    second.close()


async def test_a_lost_record_is_rebuilt_from_the_mark(lab: Lab) -> None:
    first = await lab.started(LIVE, generation=7)
    rebuilt = from_marks(first.spec, lab.owner)
    assert rebuilt is not None
    assert (rebuilt.instance, rebuilt.generation) == (first.id, 7)
    assert rebuilt.main == first.record.main
    assert from_marks(lab.spec(LIVE, "other"), lab.owner) is None


async def test_a_launchers_process_is_adopted_after_the_launcher_has_gone(lab: Lab) -> None:
    script = "setsid sh -c 'echo $$ > real; exec sleep 60' & while [ ! -s real ]; do :; done; exit 0"
    first = lab.start(script, launcher=True)
    pid = lab.note(await until(lambda: read_pid(lab.home / "worker/real")))
    await until(lambda: first.main)
    second = adopt(first.spec, record_of(lab), lab.owner, lab.exits.append)
    assert second is not None
    assert second.pid == pid
    rebuilt = from_marks(first.spec, lab.owner)
    assert rebuilt is not None
    assert rebuilt.main is not None
    assert rebuilt.main.pid == pid
    second.close()


async def test_stop_and_forget_leave_no_record(lab: Lab) -> None:
    instance = await lab.started(LIVE)
    assert await instance.stop(5) == []
    assert gone(instance.pid)
    instance.forget()
    assert record.load(instance.path) is None


DAMAGED: dict[str, Any] = {
    "empty": lambda p: p.write_text(""),
    "half": lambda p: p.write_text(p.read_text()[:40]),
    "a list": lambda p: p.write_text("[]"),
    "wrong types": lambda p: p.write_text(p.read_text().replace('"generation": 1', '"generation": "x"')),
    "no mark": lambda p: p.write_text(p.read_text().replace('"mark"', '"marc"')),
    "a directory": lambda p: (p.unlink(), p.mkdir()),
}


@pytest.mark.parametrize("case", DAMAGED)
async def test_a_damaged_record_is_said_and_can_be_set_aside(lab: Lab, case: str) -> None:
    instance = await lab.started(LIVE)
    DAMAGED[case](instance.path)
    with pytest.raises(atomic.Unreadable, match=r"worker\.json"):
        record.load(instance.path)
    assert atomic.set_aside(instance.path) is not None
    assert record.load(instance.path) is None


async def test_fields_of_a_later_version_are_left_out(lab: Lab) -> None:
    instance = await lab.started(LIVE)
    data = json.loads(instance.path.read_text())
    instance.path.write_text(json.dumps({**data, "colour": "blue"}))
    assert record.load(instance.path) == instance.record


def test_an_atomic_write_leaves_the_old_file_whole_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    atomic.write(path, {"a": 1})
    with contextlib.suppress(TypeError):
        atomic.write(path, {"a": object()})
    assert atomic.read(path) == {"a": 1}
