"""A launcher starts the real process in a session of its own and ends: the real one is found, watched and ended."""

from __future__ import annotations

import os
import signal
import time

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


async def test_a_launcher_that_is_held_up_does_not_hide_what_it_has_started(lab: Lab) -> None:
    instance = await lab.started(LAUNCHER.format(real=SLEEP, then=SLEEP), launcher=True)
    os.kill(instance.launched.proc.pid, signal.SIGSTOP)
    real = await real_of(lab)
    await until(lambda: instance.pid)
    assert instance.pid == real
    assert instance.record.main is not None
    assert instance.record.main.pid == real
    assert lab.exits == []
    # it cannot say why any more: the end is seen all the same
    os.kill(real, signal.SIGKILL)
    await until(lambda: lab.exits)
    # while its parent lives, how it ended is the parent's to know
    assert lab.exits == [Exit()]
    # and nobody waits for a frozen one to obey
    began = time.monotonic()
    assert await instance.stop(grace_s=20.0) == []
    assert time.monotonic() - began < 10


async def killed_during_the_launch(lab: Lab, then: str) -> None:
    """What the launcher has started is dead, while the launcher itself waits for the file `wait` to go."""
    (lab.home / "worker").mkdir()
    (lab.home / "worker/wait").touch()
    instance = await lab.started(LAUNCHER.format(real=SLEEP, then=then), launcher=True)
    real = await real_of(lab)
    await until(lambda: instance.pid)
    os.kill(real, signal.SIGKILL)
    await until(lambda: instance.main is not None and instance.main.exit)


async def test_an_end_during_the_launch_is_told_with_the_launchers_last_words(lab: Lab) -> None:
    then = "while test -e wait; do sleep 0.01; done; echo why; exit 3"
    await killed_during_the_launch(lab, then)
    assert lab.exits == []
    (lab.home / "worker/wait").unlink()
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(code=3)]


async def test_an_end_during_the_launch_that_the_launcher_did_not_notice(lab: Lab) -> None:
    then = "while test -e wait; do sleep 0.01; done; exit 0"
    await killed_during_the_launch(lab, then)
    (lab.home / "worker/wait").unlink()
    await until(lambda: lab.exits)
    assert lab.exits == [Exit()]
