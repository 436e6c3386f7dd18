"""Orphans by the hundred: each comes back to the daemon, and none stays a zombie."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import asyncio, json, os, subprocess, time
from yrnode.process import table
from yrnode.process.reaper import Reaper
from yrnode.process.subreaper import become_subreaper

def children():
    return [p for p in table.scan() if p.ppid == os.getpid()]

async def main():
    become_subreaper()
    reaper = Reaper(lambda: set())
    # each ends at its own time, half of them in sessions of their own, some before their parent
    script = "i=0; while [ $i -lt 100 ]; do sleep 0.$((i % 10)) & setsid -f sleep 0.$((i % 10)); i=$((i + 1)); done"
    out = await asyncio.create_subprocess_exec("sh", "-c", script)
    most = 0
    deadline = time.monotonic() + 20
    while out.returncode is None or children():
        assert time.monotonic() < deadline, [str(p) for p in children()]
        most = max(most, len(children()))
        await asyncio.sleep(0.02)
    reaper.close()
    print(json.dumps({"most": most, "code": out.returncode}))

asyncio.run(main())
"""


def test_of_two_hundred_orphans_none_stays() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["most"] >= 20, "they did come back"
