"""What a process has given back does not stay its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from pathlib import Path
from yrnode.process.heap import be_thrifty

def rss_mib():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024

if sys.argv[1] == "thrifty":
    be_thrifty()
# a large block that is freed teaches glibc to keep as much
bytearray(20 << 20)
before = rss_mib()
blocks = [bytearray(b"x" * 100_000) for _ in range(150)]
del blocks
print(rss_mib() - before)
"""


def kept_mib(how: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=60, check=True
    )
    return float(done.stdout)


def test_what_is_free_at_the_end_of_the_heap_goes_back() -> None:
    assert kept_mib("thrifty") < 2
    assert kept_mib("as usual") > 10, "or there is nothing to be thrifty about"
