"""A process is seen to end: how, how soon, and where the kernel gives no pidfd."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import statistics
import subprocess
import time
from typing import Any

import pytest

from tests.process.lab import Lab, state_of, until
from yrnode.process import table, watch
from yrnode.process.exit import Exit
from yrnode.process.watch import Watch


def child(*argv: str) -> table.Proc:
    """A child that only a Watch will reap."""
    popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    popen.returncode = 0
    proc = table.read(popen.pid)
    assert proc is not None
    return proc


async def seen(proc: table.Proc) -> tuple[Watch, Exit]:
    future: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    found = Watch(proc, future.set_result)
    return found, await asyncio.wait_for(future, 10)


def without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    monkeypatch.setattr(watch, "POLL_S", 0.02)


@pytest.fixture(params=["pidfd", "polling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polling":
        without_pidfd(monkeypatch)
    return str(request.param)


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("script", "how", "words"),
    [
        ("exit 0", Exit(code=0), "exit code 0"),
        ("exit 3", Exit(code=3), "exit code 3"),
        ("kill -9 $$", Exit(signal=9), "killed by SIGKILL"),
        ("kill -TERM $$", Exit(signal=15), "killed by SIGTERM"),
    ],
)
async def test_how_it_ended(script: str, how: Exit, words: str) -> None:
    before = fds()
    found, got = await seen(child("/bin/sh", "-c", script))
    assert (got, str(got), found.exit) == (how, words, how)
    assert table.read(found.proc.pid) is None, "a zombie was left"
    assert fds() == before


def test_exits_that_nobody_could_see_or_name() -> None:
    assert str(Exit()) == "ended, exit code unknown"
    assert str(Exit(signal=250)) == "killed by signal 250"


@pytest.mark.usefixtures("way")
async def test_one_that_ended_before_the_watch_began() -> None:
    proc = child("/bin/true")
    await until(lambda: state_of(proc.pid) == "Z")
    calls: list[Exit] = []
    found = Watch(proc, calls.append)
    # whoever makes a watch must have it in hand before it speaks
    assert calls == []
    await until(lambda: calls)
    assert (calls, found.exit) == ([Exit(code=0)], Exit(code=0))


@pytest.mark.usefixtures("way")
async def test_one_that_somebody_else_reaped() -> None:
    proc = child("/bin/true")
    os.waitpid(proc.pid, 0)
    _, how = await seen(proc)
    assert how == Exit()


@pytest.mark.usefixtures("way")
async def test_a_later_process_with_the_same_pid_is_another_one() -> None:
    proc = child("/bin/sleep", "60")
    try:
        earlier = table.Proc(**{**proc.__dict__, "start_ticks": proc.start_ticks - 1})
        calls: list[Exit] = []
        found = Watch(earlier, calls.append)
        await until(lambda: calls)
        assert calls == [Exit()]
        found.send(signal.SIGKILL)
        assert state_of(proc.pid) in "SR"
    finally:
        os.kill(proc.pid, signal.SIGKILL)
        os.waitpid(proc.pid, 0)


@pytest.mark.usefixtures("way")
async def test_a_watch_signals_its_process_and_ends_without_a_word_when_closed() -> None:
    calls: list[Exit] = []
    first, second = (Watch(child("/bin/sleep", "60"), calls.append) for _ in range(2))
    second.close()
    first.send(signal.SIGTERM)
    os.kill(second.proc.pid, signal.SIGKILL)
    await until(lambda: first.exit)
    os.waitpid(second.proc.pid, 0)
    assert calls == [Exit(signal=15)]
    assert second.exit is None
    first.send(signal.SIGTERM)


async def test_a_closed_watch_of_a_dead_process_says_nothing() -> None:
    proc = child("/bin/true")
    os.waitpid(proc.pid, 0)
    calls: list[Exit] = []
    Watch(proc, calls.append).close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls == []


async def test_deaths_are_seen_at_once(record_property: Any, capsys: pytest.CaptureFixture[str]) -> None:
    procs = [child("/bin/sleep", "60") for _ in range(50)]
    took: list[float] = []
    for proc in procs:
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        found = Watch(proc, lambda _, f=future: f.set_result(time.monotonic()))
        began = time.monotonic()
        found.send(signal.SIGKILL)
        took.append((await asyncio.wait_for(future, 10) - began) * 1000)
    p50, p99 = statistics.median(took), sorted(took)[49]
    record_property("death_seen_p99_ms", p99)
    with capsys.disabled():
        print(f"\n50 kills seen: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    # the bound of a poll would be half a second; a busy machine may add its own
    assert p50 < 50


async def test_a_component_that_ends_at_once_without_pidfds_is_still_seen(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pidfd(monkeypatch)
    lab.start("exit 7")
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(code=7)]
