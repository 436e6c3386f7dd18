"""A launcher starts the real process in a session of its own and ends: the real one is found, watched and ended."""

from __future__ import annotations

import os
import signal

from tests.process.lab import Lab, gone, read_pid, until
from yrnode.process.exit import Exit

LAUNCHER = "setsid sh -c 'echo $$ > real; {real}' & while ! test -s real; do sleep 0.01; done; touch up; {then}"
SLEEP = "exec sleep 60"


async def real_of(lab: Lab) -> int:
    return lab.note(await until(lambda: read_pid(lab.home / "worker/real")))


async def test_the_real_process_is_found_when_the_launcher_has_done_well(lab: Lab) -> None:
    instance = lab.start(LAUNCHER.format(real=SLEEP, then="exit 0"), launcher=True)
    assert instance.pid is None, "the launcher is not the component"
    real = await real_of(lab)
    await until(lambda: instance.pid)
    assert instance.pid == real
    assert instance.launched.exit == Exit(code=0)
    assert lab.exits == []
    assert instance.watched == {real}
    os.kill(real, signal.SIGKILL)
    await until(lambda: lab.exits)
    assert len(lab.exits) == 1
    assert await instance.stop(grace_s=1.0) == []


async def test_a_launcher_that_fails_is_the_components_end_and_what_it_started_is_ended(lab: Lab) -> None:
    instance = lab.start(LAUNCHER.format(real=SLEEP, then="exit 1"), launcher=True)
    real = await real_of(lab)
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(code=1)]
    assert not gone(real)
    assert await instance.stop(grace_s=5.0) == []
    assert gone(real)


async def test_a_launcher_that_starts_nothing_is_an_end_too(lab: Lab) -> None:
    instance = lab.start("exit 0", launcher=True)
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(code=0)]
    assert instance.pid is None


async def test_a_launcher_that_hangs_is_ended_with_what_it_started(lab: Lab) -> None:
    instance = await lab.started(LAUNCHER.format(real=SLEEP, then=SLEEP), launcher=True)
    real = await real_of(lab)
    assert instance.pid is None
    await until(lambda: len(instance.members()) >= 2)
    assert await instance.stop(grace_s=5.0) == []
    assert gone(real)


async def test_a_launcher_that_is_killed_leaves_nothing_after_the_stop(lab: Lab) -> None:
    instance = await lab.started(LAUNCHER.format(real=SLEEP, then=SLEEP), launcher=True)
    real = await real_of(lab)
    os.kill(instance.launched.proc.pid, signal.SIGKILL)
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(signal=9)]
    assert await instance.stop(grace_s=5.0) == []
    assert gone(real)
