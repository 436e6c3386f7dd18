"""systemd with the same children, as the init of a throw-away machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import sleepers
from bench.sleepers import Births, wait_all
from bench.supervised import LATE_S, Took, directory
from tests.systemd.box import Box

UNIT = """[Unit]
StartLimitIntervalSec=0
[Service]
Environment=BIRTHS={births}
ExecStart=/bin/sh {where}/child.sh %i
Restart=always
RestartSec=0
"""
EXITED = "MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15"
"""What it says, by its own catalogue, when a unit's process is dead."""


def systemd(counts: Sequence[int], kills: int) -> dict[int, Took]:
    """Its times by how many children there are."""
    found = {count: Took(why="not measured") for count in counts}
    count = counts[0]
    try:
        with directory() as (where, births):
            (where / "child.sh").write_text(sleepers.SCRIPT.replace("$0", "$1") + "\n")
            box = Box(where)
            try:
                box.write("/etc/systemd/system/child@.service", UNIT.format(births=births.path, where=where))
                box.systemctl("daemon-reload")
                for count in counts:
                    _measure(box, births, [f"c{i}" for i in range(count)], kills, found[count])
                    found[count].why = ""
            finally:
                # who is in there is not where those pids say
                births.pids.clear()
                box.close()
    except pytest.skip.Exception as e:
        for took in found.values():
            took.why = str(e)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as e:
        found[count].why = f"could not be measured: {str(e)[:200]!r}"
    return found


def _measure(box: Box, births: Births, names: Sequence[str], kills: int, took: Took) -> None:
    box.systemctl("start", *(f"child@{n}.service" for n in names))
    if not wait_all((births,), lambda: births.pids.keys() >= set(names), 60):
        raise TimeoutError("systemd: not all children came")
    killed: list[tuple[str, float]] = []
    for i in range(kills):
        name = names[i % len(names)]
        before = births.pids[name]
        pid = _outside(box.init, before)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        if not wait_all((births,), lambda: births.pids[name] != before, LATE_S):  # noqa: B023
            raise TimeoutError(f"systemd: {name} is not there again")
        took.again.append((births.at[name] - began) * 1000)
        killed.append((name, began))
    box.run("journalctl", "--sync")
    said = box.run("journalctl", "-o", "json", "--no-pager", EXITED).splitlines()
    deaths = [(e["UNIT"], int(e["__MONOTONIC_TIMESTAMP"]) / 1e6) for e in map(json.loads, said)]
    for name, began in killed:
        at = next((at for unit, at in deaths if unit == f"child@{name}.service" and at >= began), None)
        if at is not None:
            took.seen.append((at - began) * 1000)


def _outside(init: str, pid: int) -> int:
    """What the process that is `pid` in there is called here."""
    space = os.readlink(f"/proc/{init}/ns/pid")
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            within = next(x for x in status.read_text().splitlines() if x.startswith("NSpid:")).split()[1:]
            if len(within) > 1 and int(within[-1]) == pid and os.readlink(status.parent / "ns/pid") == space:
                return int(status.parent.name)
        except (OSError, StopIteration):
            continue
    raise ProcessLookupError(f"no process {pid} in the machine")
