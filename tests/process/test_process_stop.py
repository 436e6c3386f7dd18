"""An instance is ended until nothing of it is left, and nobody else is touched."""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.process.lab import PATH, Lab, gone, read_pid, state_of, until
from yrnode.process import record, table
from yrnode.process.exit import Exit
from yrnode.process.instance import mapped_shm, signal_all
from yrnode.residue import files

UP = "touch up; exec sleep 60"
# a child that deaf shells cannot be: sleep dies of TERM, so the shell starts it again
DEAF = "trap '' TERM; touch up; while :; do sleep 60; done"


async def test_term_is_enough_for_most(lab: Lab) -> None:
    instance = await lab.started(UP)
    began = time.monotonic()
    assert await instance.stop(grace_s=10.0) == []
    assert time.monotonic() - began < 5
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(signal=15)]
    assert instance.watched == set()


async def test_a_farewell_is_waited_for(lab: Lab) -> None:
    instance = await lab.started("trap 'sleep 0.3; echo bye; exit 5' TERM; touch up; while :; do sleep 0.05; done")
    assert await instance.stop(grace_s=10.0) == []
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(code=5)]
    assert "bye" in instance.spec.log.read_text()


async def test_who_ignores_term_is_killed_after_the_grace(lab: Lab) -> None:
    instance = await lab.started(DEAF)
    began = time.monotonic()
    assert await instance.stop(grace_s=0.3) == []
    assert time.monotonic() - began >= 0.3
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(signal=9)]


async def test_a_frozen_one_is_killed_after_the_grace(lab: Lab) -> None:
    instance = await lab.started(UP)
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGSTOP)
    await until(lambda: state_of(instance.pid or 0) == "T")
    assert await instance.stop(grace_s=0.2) == []
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(signal=9)]


DAEMON = "(setsid sh -c 'echo $$ > daemon; {body}' &) ; touch up; exec sleep 60"


async def daemon_of(lab: Lab) -> int:
    return lab.note(await until(lambda: read_pid(lab.home / "worker/daemon")))


async def test_a_daemonised_grandchild_with_the_mark_is_ended_too(lab: Lab) -> None:
    instance = await lab.started(DAEMON.format(body="exec sleep 60"))
    daemon = await daemon_of(lab)
    proc = table.read(daemon)
    assert proc is not None
    assert proc.sid == daemon
    await until(lambda: {m.pid for m in instance.members()} == {instance.pid, daemon})
    assert await instance.stop(grace_s=5.0) == []
    assert gone(daemon)


async def test_a_deaf_daemonised_grandchild_is_killed(lab: Lab) -> None:
    instance = await lab.started(DAEMON.format(body='trap "" TERM; while :; do sleep 60; done'))
    daemon = await daemon_of(lab)
    assert await instance.stop(grace_s=0.3) == []
    assert gone(daemon)


MEMBER = "sh -c 'trap \"echo asked; exit 0\" TERM; echo $$ > member; while :; do sleep 0.05; done' & "


async def test_members_outlive_a_dead_leader_and_are_asked_to_end(lab: Lab) -> None:
    instance = await lab.started(MEMBER + "touch up; wait")
    member = lab.note(await until(lambda: read_pid(lab.home / "worker/member")))
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)
    await until(lambda: lab.exits)
    assert member in {m.pid for m in instance.members()}
    assert await instance.stop(grace_s=5.0) == []
    assert gone(member)
    assert "asked" in instance.spec.log.read_text()


async def test_members_of_a_dead_leader_are_asked_beside_a_session_that_has_one(lab: Lab) -> None:
    instance = await lab.started(MEMBER + DAEMON.format(body="exec sleep 60"))
    pid = lab.note(await until(lambda: read_pid(lab.home / "worker/member")))
    daemon = await daemon_of(lab)
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)
    await until(lambda: lab.exits)
    assert await instance.stop(grace_s=5.0) == []
    assert gone(pid)
    assert gone(daemon)
    assert "asked" in instance.spec.log.read_text()


async def test_a_stranger_with_the_same_command_line_is_not_touched(lab: Lab) -> None:
    other_home = {**PATH, "YRNODE_HOME": "/elsewhere"}
    instance = await lab.started(UP)
    strangers = [
        subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
        for env in (
            PATH,
            {**other_home, "YRNODE_INSTANCE": instance.record.mark},
            {**PATH, "YRNODE_HOME": str(lab.home), "YRNODE_INSTANCE": f"{instance.record.mark}0"},
        )
    ]
    try:
        assert await instance.stop(grace_s=5.0) == []
        assert [s.poll() for s in strangers] == [None, None, None]
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


async def test_a_zombie_is_gone(lab: Lab) -> None:
    instance = await lab.started(UP)
    instance.launched.close()
    assert instance.pid is not None
    os.kill(instance.pid, signal.SIGKILL)
    await until(lambda: state_of(instance.pid or 0) == "Z")
    assert instance.members() == []
    assert await instance.stop(grace_s=0.1) == []


async def test_an_instance_that_has_ended_stops_at_once(lab: Lab) -> None:
    instance = lab.start("exit 0")
    await until(lambda: lab.exits)
    began = time.monotonic()
    assert await instance.stop(grace_s=30.0) == []
    assert time.monotonic() - began < 5


async def test_nothing_left_is_proven_by_one_look(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = lab.start("exit 0")
    await until(lambda: lab.exits)
    looks = []
    monkeypatch.setattr(table, "Look", lambda make=table.Look: looks.append(1) or make())
    assert await instance.stop(grace_s=30.0) == []
    assert len(looks) == 1


async def test_the_memory_of_one_that_is_ready_for_long_is_looked_at_less_often(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("yrnode.process.instance.mapped_shm", lambda pid: asked.append(pid) or set())
    instance = await lab.started(UP)

    async def looks(**facts: float) -> int:
        asked.clear()
        instance.record = replace(instance.record, **facts)
        for _ in range(3):
            assert [p.pid for p in await instance.note(table.Look())] == [instance.pid]
        return len(asked)

    assert await looks() == 3, "not ready yet"
    assert await looks(ready_at=time.monotonic()) == 3
    assert await looks(ready_at=time.monotonic() - 1000) == 0, "looked at just now"
    monkeypatch.setattr("yrnode.process.instance._MAPS_S", 0.0)
    assert await looks() == 3
    monkeypatch.undo()
    assert (await instance.stop(grace_s=5.0)) == []


async def test_a_note_that_comes_too_late_brings_no_record_back(lab: Lab) -> None:
    instance = await lab.started(UP)
    late = asyncio.create_task(instance.note())
    await asyncio.sleep(0)
    instance.shm = {"/dev/shm/psm_yrnode-test-late"}
    instance.close()
    instance.forget()
    await late
    assert not instance.path.exists()


async def test_letting_go_ends_nothing(lab: Lab) -> None:
    instance = await lab.started(UP)
    instance.close()
    assert instance.pid is not None
    assert not gone(instance.pid)
    assert lab.exits == []


def test_only_the_very_process_is_signalled() -> None:
    child = subprocess.Popen(["sleep", "60"])
    proc = table.read(child.pid)
    assert proc is not None
    earlier = table.Proc(**{**proc.__dict__, "start_ticks": proc.start_ticks - 1})
    before = len(os.listdir("/proc/self/fd"))
    signal_all([earlier], signal.SIGKILL)
    assert child.poll() is None
    signal_all([proc, proc], signal.SIGKILL)
    assert child.wait(10) == -9
    signal_all([proc], signal.SIGKILL)
    assert len(os.listdir("/proc/self/fd")) == before


def test_signals_reach_it_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, flags: int = 0) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refused)
    child = subprocess.Popen(["sleep", "60"])
    proc = table.read(child.pid)
    assert proc is not None
    signal_all([proc], signal.SIGKILL)
    assert child.wait(10) == -9


MAP = """
import mmap, os, sys, time
for name in sys.argv[1:]:
    fd = os.open("/dev/shm/" + name, os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(fd, 4096)
    mmap.mmap(fd, 4096).write(b"x")
    globals()[name.replace("/", "_")] = mmap.mmap(fd, 4096)
open("up", "w")
time.sleep(60)
"""


async def test_shared_memory_that_the_instance_made_is_noted_and_removed_once_nobody_maps_it(lab: Lab) -> None:
    tag = f"psm_yrnode-test-{os.getpid()}"
    mine, shared, weights, folder = (Path(f"/dev/shm/{tag}-{n}") for n in ("mine", "shared", "weights", "folder"))
    # weights that somebody keeps in memory, and a folder of his: the instance maps both
    weights.write_bytes(b"w" * 4096)
    folder.mkdir()
    (folder / "x").write_bytes(b"w" * 4096)
    try:
        words = " ".join(f"{tag}-{n}" for n in ("mine", "shared", "weights", "folder/x"))
        instance = await lab.started(f"exec \"$PYTHON\" -S -c '{MAP}' {words}")
        with open(shared, "r+b") as f, mmap.mmap(f.fileno(), 4096):
            await instance.note()
            assert instance.shm == {str(mine), str(shared)}
            kept = record.load(instance.path)
            assert kept is not None
            assert kept.shm == (str(mine), str(shared)), "a later daemon knows them too"
            assert await instance.stop(grace_s=5.0) == []
            assert mine.exists(), "it left its memory behind"
            assert files.remove_shm(instance.shm, instance.record.began) == [str(mine)]
            assert shared.exists(), "this process still maps it"
        assert files.remove_shm(instance.shm, instance.record.began) == [str(shared)]
        assert files.remove_shm(instance.shm, instance.record.began) == []
        assert (weights.exists(), (folder / "x").exists()) == (True, True)
    finally:
        (folder / "x").unlink()
        folder.rmdir()
        for path in (mine, shared, weights):
            path.unlink(missing_ok=True)


def test_memory_whose_name_is_gone_does_not_count() -> None:
    path = Path(f"/dev/shm/yrnode-test-{os.getpid()}-gone")
    path.write_bytes(b"x" * 4096)
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 4096):
        assert str(path) in mapped_shm(os.getpid())
        path.unlink()
        assert not {p for p in mapped_shm(os.getpid()) if str(path) in p}
    assert mapped_shm(2**22 + 1) == set()


def test_a_semaphore_is_mapped_by_its_maker_too() -> None:
    """The kernel shows its maker another name than the file has."""
    lock = multiprocessing.get_context("spawn").Lock()
    path = f"/dev/shm/sem.{lock._semlock.name.lstrip('/')}"
    assert path in mapped_shm(os.getpid())
    assert files.remove_shm([path]) == []
