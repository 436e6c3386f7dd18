"""A process is seen to end: how, how soon, and where the kernel gives no pidfd."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.process.lab import Lab, state_of, until
from yrnode.model.spec import ComponentSpec
from yrnode.process import record, table, watch
from yrnode.process.adopt import adopt
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance
from yrnode.process.launch import launch
from yrnode.process.watch import Watch
from yrnode.residue import orphans

ROOT = Path(__file__).resolve().parents[2]


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


KILLS = 200
ROUNDS = 5
LIVE = "exec sleep 100"
# an earlier daemon: it starts them, and is gone
EARLIER = """
import asyncio, sys
from pathlib import Path
from tests.process.lab import Lab
async def main():
    lab = Lab(Path(sys.argv[1]))
    for n in range(int(sys.argv[2])):
        lab.start(sys.argv[3], f"w{n}")
asyncio.run(main())
"""


@pytest.mark.alone
@pytest.mark.parametrize("whose", ["own", "adopted"])
async def test_deaths_are_seen_at_once(
    lab: Lab, whose: str, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the kill until the loop has been told, of components as the daemon starts them and takes them over.

    A busy neighbour can spoil a round; what is slow of our own spoils all of them.
    """
    for _ in range(ROUNDS):
        took = sorted(await kill_all(lab, whose))
        p50, p99 = statistics.median(took), took[KILLS * 99 // 100 - 1]
        times = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, worst {took[-1]:.2f} ms"
        with capsys.disabled():
            print(f"\n{KILLS} kills, {whose}: seen in {times}, load {os.getloadavg()[0]:.1f}")
        if p99 < 10:
            break
    record_property(f"{whose}_death_seen_p99_ms", p99)
    assert p99 < 10


async def kill_all(lab: Lab, whose: str) -> list[float]:
    """Milliseconds of each kill."""
    if whose == "adopted":
        argv = [sys.executable, "-c", EARLIER, str(lab.home), str(KILLS), LIVE]
        subprocess.run(argv, cwd=ROOT, check=True, timeout=60)
    took: list[float] = []
    try:
        for n in range(KILLS):
            seen: list[float] = []
            told = partial(note, seen)
            spec = lab.spec(LIVE, f"w{n}")
            found = launch(spec, 1, lab.owner, told, {}) if whose == "own" else take_over(lab, spec, told)
            assert found.pid is not None
            began = time.monotonic()
            os.kill(found.pid, signal.SIGKILL)
            await until(lambda seen=seen: seen)
            took.append((seen[0] - began) * 1000)
            found.close()
    finally:
        for proc in orphans.find("", lab.home):
            os.kill(proc.pid, signal.SIGKILL)
    return took


def note(seen: list[float], how: Exit) -> None:
    seen.append(time.monotonic())


def take_over(lab: Lab, spec: ComponentSpec, told: Callable[[Exit], None]) -> Instance:
    kept = record.load(record.path_of(lab.owner.run_dir, spec.name))
    assert kept is not None
    found = adopt(spec, kept, lab.owner, told)
    assert found is not None
    proc = table.read(found.pid or 0)
    assert proc is not None
    assert proc.ppid != os.getpid(), "not a child of this one"
    return found


async def test_a_component_that_ends_at_once_without_pidfds_is_still_seen(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pidfd(monkeypatch)
    lab.start("exit 7")
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(code=7)]
