"""Orphans come back and are reaped; a watched child's exit status is left to its watch."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import asyncio, json, os, subprocess, sys, time
from yrnode.process import table
from yrnode.process.reaper import Reaper
from yrnode.process.subreaper import become_subreaper
from yrnode.process.watch import Watch

async def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.01)

async def main():
    become_subreaper()
    watched = set()
    reaper = Reaper(lambda: watched)
    out = subprocess.run(["sh", "-c", "setsid sleep 0.2 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True)
    orphan = int(out.stdout)
    parent = table.read(orphan).ppid
    child = subprocess.Popen(["sh", "-c", "exit 9"])
    child.returncode = 0
    watched.add(child.pid)
    # dead, and seen by the reaper, before its watch looks
    await until(lambda: table.read(child.pid).state == "Z")
    await until(lambda: table.read(orphan) is None)
    await asyncio.sleep(0.3)
    found = []
    Watch(table.read(child.pid), found.append)
    await until(lambda: found)
    reaper.close()
    print(json.dumps({"parent": parent, "me": os.getpid(), "code": found[0].code}))

asyncio.run(main())
"""


def test_an_orphan_is_reaped_and_a_watched_child_keeps_its_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["parent"] == found["me"]
    assert found["code"] == 9
