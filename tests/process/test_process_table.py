"""The kernel's process table, with names that try to break its reading."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.process.lab import until
from yrnode.process import table

RENAME = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(15, os.fsencode(sys.argv[1]), 0, 0, 0)
print("up", flush=True)
time.sleep(60)
"""
NAMES = ["a b", "(sd-pam)", "x) S 1 (y", ") R 2 2 2", "VLLM::EngineCore", "käse", "名前", "a\nb", "((("]


def test_a_process_that_does_not_exist() -> None:
    assert table.read(2**22 + 1) is None
    assert table.command(2**22 + 1) == ""
    assert table.marks(2**22 + 1) == ("", "")


def test_this_process() -> None:
    me = table.read(os.getpid())
    assert me is not None
    assert (me.pid, me.ppid, me.pgid, me.sid) == (os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0))
    assert me.start_ticks > 0
    assert me.state in "RS"
    assert table.alive(me)
    assert any(p.pid == me.pid and p.start_ticks == me.start_ticks for p in table.scan())
    assert str(me) == f"pid {me.pid} ({me.comm}, state {me.state})"


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Iterator[int]:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", RENAME, request.param], stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.wait()
    child.stdout.close()


@pytest.mark.parametrize(("named", "name"), [(n, n) for n in NAMES], indirect=["named"], ids=range(len(NAMES)))
def test_names_with_blanks_brackets_and_letters_of_any_script(named: int, name: str) -> None:
    proc = table.read(named)
    assert proc is not None
    # the kernel keeps 15 bytes
    assert proc.comm == os.fsencode(name)[:15].decode("utf-8", "replace")
    assert (proc.ppid, proc.pgid, proc.sid) == (os.getpid(), named, named)
    assert proc.state in "RS"


async def test_marks_come_from_the_processs_own_environment() -> None:
    env = {"PATH": os.defpath, "YRNODE_INSTANCE": "c/n/etcd/ab=cd", "YRNODE_HOME": "/state dir", "XYRNODE_HOME": "no"}
    child = subprocess.Popen(["/bin/sleep", "60"], env=env)
    try:
        # between fork and exec it is still a copy of this process
        await until(lambda: table.marks(child.pid)[0])
        assert table.marks(child.pid) == ("c/n/etcd/ab=cd", "/state dir")
        assert table.command(child.pid) == "/bin/sleep 60"
    finally:
        child.kill()
        child.wait()
    assert table.marks(child.pid) == ("", "")


async def test_marks_are_seen_while_a_process_becomes_another_program() -> None:
    env = {"PATH": os.defpath, "YRNODE_INSTANCE": "c/n/etcd/ab", "YRNODE_HOME": "/state"}
    # puts itself in its own place again and again: some reads meet it in between
    again = 'i=0; while [ $i -lt 200 ]; do i=$((i+1)); done; exec /bin/sh -c "$0" "$0"'
    child = subprocess.Popen(["/bin/sh", "-c", again, again], env=env)
    try:
        await until(lambda: table.marks(child.pid)[0])
        assert {table.marks(child.pid) for _ in range(20000)} == {("c/n/etcd/ab", "/state")}
    finally:
        child.kill()
        child.wait()


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    proc = table.read(child.pid)
    assert proc is not None
    assert (proc.state, table.alive(proc)) == ("Z", False)
    child.wait()
    assert not table.alive(proc)


async def test_a_command_line_is_one_line_and_not_long() -> None:
    child = subprocess.Popen(["/bin/sh", "-c", "read x\n\n#", *["0"] * 500], stdin=subprocess.PIPE)
    try:
        await until(lambda: table.command(child.pid).startswith("/bin/sh -c read x # 0 0"))
        command = table.command(child.pid)
        assert 190 < len(command) <= 200, "cut between words"
        assert command.endswith("…")
    finally:
        child.kill()
        child.communicate()


def test_the_boot_id_stays() -> None:
    assert len(table.boot_id()) == 36
    assert table.boot_id() == table.boot_id()


def test_who_comes_during_a_look_is_looked_at_too() -> None:
    looking = table.scan()
    found = [next(looking).pid]
    child = subprocess.Popen(["sleep", "60"])
    try:
        found += [p.pid for p in looking]
        assert child.pid in found
        assert len(set(found)) == len(found)
    finally:
        child.kill()
        child.wait()


def test_one_look_reads_each_mark_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(table, "marks", lambda pid: asked.append(pid) or ("c/n/etcd/ab", "/state"))
    look = table.Look()
    assert os.getpid() in {p.pid for p in look.procs}
    assert {look.marks(os.getpid()) for _ in range(3)} == {("c/n/etcd/ab", "/state")}
    assert asked == [os.getpid()]


@pytest.mark.parametrize(
    ("cmdline", "words"),
    [
        (b"", []),
        (b"sleep\x0060\x00", ["sleep", "60"]),
        (b"tool\x00--api-key\x00sk-1\x00", ["tool", "--api-key", "***"]),
        # titles that a process has written over it, with and without an end
        (b"tool --api-key sk-1\x00\x00\x00", ["tool", "--api-key", "***"]),
        (b"tool --api-key sk-1", ["tool", "--api-key", "***"]),
        (b"tool\x00a b\x00", ["tool", "a b"]),
        (b"tool\x00\xff\x00", ["tool", "\ufffd"]),
    ],
)
def test_the_words_of_a_command_line(cmdline: bytes, words: list[str]) -> None:
    assert table.words_of(cmdline) == words
