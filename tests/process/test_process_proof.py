"""Who carries an instance's mark, and whose he is: what an operator starts with a rank's environment lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.process.lab import NAME, Lab, gone, until
from yrnode.model.cause import Reason
from yrnode.process import record, table
from yrnode.process.adopt import adopt, from_marks
from yrnode.process.instance import members_of
from yrnode.residue import orphans
from yrnode.residue.clear import clear

# An operator's login: it does not carry the mark; what it starts does, as with `env $(cat /proc/PID/environ) …`.
OPERATOR = """
import json, os, pty, subprocess, sys, time
pid, home, away = sys.argv[1:]
with open(f"/proc/{pid}/environ") as f:
    env = dict(x.partition("=")[::2] for x in f.read().split(chr(0)) if x)
found = {"plain": subprocess.Popen(["sleep", "60"], env=env, cwd=home).pid}
found["daemon"] = subprocess.Popen(["sleep", "60"], env=env, cwd=away, start_new_session=True).pid
child, fd = pty.fork()
if child == 0:
    os.chdir(home)
    os.execvpe("sleep", ["sleep", "60"], env)
found["terminal"] = child
print(json.dumps(found), flush=True)
time.sleep(60)
"""


class Operator:
    def __init__(self, pid: int, home: Path, away: Path) -> None:
        argv = [sys.executable, "-S", "-c", OPERATOR, str(pid), str(home), str(away)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        self.pids: dict[str, int] = json.loads(self.process.stdout.readline())

    def close(self) -> None:
        for pid in self.pids.values():
            os.kill(pid, 9)
        self.process.kill()
        with self.process:
            self.process.wait()


@pytest_asyncio.fixture
async def operator(lab: Lab, tmp_path: Path) -> AsyncIterator[Operator]:
    instance = await lab.started("touch up; sleep 60 & exec sleep 60")
    found = Operator(instance.pid or 0, instance.spec.dir, tmp_path)
    await until(lambda: all(table.marks(p)[0] == instance.record.mark for p in found.pids.values()))
    yield found
    found.close()


async def test_an_operators_processes_with_the_mark_are_told_from_the_instances(lab: Lab, operator: Operator) -> None:
    instance = lab.instances[0]
    members = {m.pid for m in instance.members()}
    assert len(members) == 2
    found = orphans.carriers(f"{NAME}/worker/", lab.home, instance.spec.log)[instance.record.mark]
    assert {p.pid for p in found.own} == members
    assert {p.pid for p in found.inherited} == {operator.pids["plain"], operator.pids["terminal"]}
    assert {p.pid for p in found.doubtful} == {operator.pids["daemon"]}


async def test_they_outlive_stop_and_clean_up_and_the_unproven_one_holds_the_start(
    lab: Lab, operator: Operator
) -> None:
    instance = lab.instances[0]
    assert await instance.stop(0.3) == []
    instance.forget()
    blocked = await clear(instance.spec, lab.owner)
    assert blocked is not None
    assert blocked.reason is Reason.RESIDUE
    assert blocked.evidence == str(table.read(operator.pids["daemon"]))
    assert from_marks(instance.spec, lab.owner) is None, "nor is it taken over"
    assert not any(gone(pid) for pid in operator.pids.values())
    os.kill(operator.pids["daemon"], 9)
    await until(lambda: gone(operator.pids["daemon"]))
    assert await clear(instance.spec, lab.owner) is None
    assert not any(gone(operator.pids[x]) for x in ("plain", "terminal"))


async def test_a_member_with_a_session_of_its_own_is_known_to_a_later_daemon(lab: Lab, tmp_path: Path) -> None:
    """It changes its directory and closes its output, as daemons do: later nothing would prove it but the record."""
    script = "setsid sh -c 'cd /; exec >/dev/null; sleep 60 & echo $! > \"$0/far\"; wait' $PWD & until [ -s far ]; do :; done; touch up; wait"  # noqa: E501
    instance = await lab.started(script)
    far = int((instance.spec.dir / "far").read_text())
    await instance.note()
    kept = record.load(instance.path)
    assert kept is not None
    assert len(kept.sessions) == 1
    first = instance.pid or 0
    os.kill(first, 9)
    await until(lambda: gone(first))
    later = adopt(instance.spec, kept, lab.owner, lab.exits.append)
    assert later is not None
    lab.instances.append(later)
    assert far in {m.pid for m in members_of(kept, instance.spec.dir, instance.spec.log)}
    assert await later.stop(0.3) == []
    assert gone(far)


async def test_a_zombie_is_gone_for_a_stop_though_it_is_still_in_the_session(lab: Lab) -> None:
    """Its parent, outside of the instance's reach, does not wait for it."""
    script = "setsid -f sleep 60; (sleep 60 & echo $! > zombie; touch up; exec sleep 60) & wait"
    instance = await lab.started(script)
    zombie = int((instance.spec.dir / "zombie").read_text())
    os.kill(zombie, 9)
    await until(lambda: (p := table.read(zombie)) is None or p.state == "Z")
    assert zombie not in {m.pid for m in instance.members()}
    assert await instance.stop(0.3) == []
