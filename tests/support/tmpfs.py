"""A small file system of its own, for tests of full disks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """Mounted with `-o size=…`; the test is skipped where that needs rights that we do not have."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "yrnode-test", str(folder)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        # lazily: a process of a failed test may still be in it
        subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def tmpfs(size: str) -> Iterator[Path]:
    """The same in a directory of its own."""
    folder = tempfile.mkdtemp(prefix="yrt-", dir="/tmp")
    try:
        with mounted(Path(folder), size) as found:
            yield found
    finally:
        os.rmdir(folder)
