"""Processes of an earlier instance: found by mark and state directory, ended, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.process.lab import PATH, gone, until
from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Plane
from yrnode.process import table
from yrnode.process.launch import Owner
from yrnode.residue import orphans
from yrnode.residue.clear import clear
from yrnode.residue.orphans import end, find, mark_of

Orphan = Callable[..., Awaitable[int]]


@pytest_asyncio.fixture
async def orphan(tmp_path: Path) -> AsyncIterator[Orphan]:
    """A process with a mark; reaped at the end, whatever became of it."""
    children: list[subprocess.Popen[bytes]] = []

    async def start(component: str, home: Path = tmp_path, *, deaf: bool = False) -> int:
        mark = f"{mark_of('c/n0', component)}1234"
        script = "trap '' TERM; echo up; while :; do sleep 60; done" if deaf else "echo up; exec sleep 60"
        env = {**PATH, "YRNODE_INSTANCE": mark, "YRNODE_HOME": str(home)}
        cwd = home / component.replace("/", "-")
        cwd.mkdir(parents=True, exist_ok=True)
        argv = ["/bin/sh", "-c", script]
        child = subprocess.Popen(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, start_new_session=True)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        return child.pid

    yield start
    await end("", tmp_path, 0.0)
    for child in children:
        child.kill()
        with child:
            child.wait()


def pids(found: list[table.Proc]) -> set[int]:
    return {p.pid for p in found}


def test_a_components_mark_ends_in_a_slash() -> None:
    assert mark_of("c/n0", "rank/serve/1") == "c/n0/rank/serve/1/"


async def test_only_this_component_of_this_home(orphan: Orphan, tmp_path: Path) -> None:
    one, ten = await orphan("rank/serve/1"), await orphan("rank/serve/10")
    elsewhere = await orphan("rank/serve/1", tmp_path / "other")
    assert pids(find(mark_of("c/n0", "rank/serve/1"), tmp_path)) == {one}
    assert pids(find(mark_of("c/n0", "rank/serve/10"), tmp_path)) == {ten}
    assert pids(find(mark_of("c/n1", "rank/serve/1"), tmp_path)) == set()
    assert pids(find("", tmp_path)) == {one, ten}
    assert await end(mark_of("c/n0", "rank/serve/1"), tmp_path, 5.0) == []
    assert (gone(one), gone(ten), gone(elsewhere)) == (True, False, False)


async def test_who_ignores_term_is_killed_after_the_grace(orphan: Orphan, tmp_path: Path) -> None:
    pid = await orphan("worker", deaf=True)
    began = time.monotonic()
    assert await end("c/n0/worker/", tmp_path, 0.3) == []
    assert time.monotonic() - began >= 0.3
    assert gone(pid)


async def test_who_cannot_be_ended_is_named(orphan: Orphan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = await orphan("worker")
    monkeypatch.setattr(orphans, "signal_all", lambda procs, number: None)
    left = await end("c/n0/worker/", tmp_path, 0.1, kill_s=0.2)
    assert pids(left) == {pid}


async def test_nothing_to_end_takes_no_time(tmp_path: Path) -> None:
    began = time.monotonic()
    assert await end("c/n0/worker/", tmp_path, 30.0) == []
    assert time.monotonic() - began < 5


SELF = """
import asyncio, os, sys
from pathlib import Path
from yrnode.residue.orphans import end
print(asyncio.run(end("c/n0/worker/", Path(sys.argv[1]), 0.5)))
"""


async def test_a_yrnode_that_itself_carries_the_mark_lives(tmp_path: Path) -> None:
    env = {**os.environ, "YRNODE_INSTANCE": "c/n0/worker/1", "YRNODE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SELF, tmp_path], env=env, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"[]\n"), done.stderr.decode()


async def test_a_zombie_is_no_orphan(orphan: Orphan, tmp_path: Path) -> None:
    pid = await orphan("worker")
    os.kill(pid, 9)
    await until(lambda: gone(pid))
    assert find("c/n0/worker/", tmp_path) == []


async def test_before_a_start_what_the_file_no_longer_lists_goes_and_the_others_stay(
    orphan: Orphan, tmp_path: Path
) -> None:
    here, gone_from_file = await orphan("rank/serve/0"), await orphan("rank/old/0")
    own = ComponentSpec("router", "router", Plane.ROUTER, ("true",), {}, tmp_path / "router", tmp_path / "router.log")
    names = ("router", "rank/serve/0")
    assert await clear(own, Owner("c/n0", tmp_path, tmp_path / "run"), names) is None
    assert not gone(here)
    await until(lambda: gone(gone_from_file))
