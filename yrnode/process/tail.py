"""The end of a component's own output."""

from __future__ import annotations

import os
from pathlib import Path

HEADER = "--- yrnode: {name} instance {instance} generation {generation}\n"
BYTES = 128 * 1024


def header(name: str, instance: str, generation: int) -> bytes:
    """The line that begins an instance's output."""
    return HEADER.format(name=name, instance=instance, generation=generation).encode()


def instance_lines(path: Path, instance: str) -> list[str]:
    """The last lines that this instance wrote, at most 128 KiB; empty where the file cannot be read."""
    try:
        with open(path, "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - BYTES))
            text = f.read().decode("utf-8", "replace")
    except OSError:
        return []
    _, found, rest = text.rpartition(f" instance {instance} ")
    return (rest if found else text).splitlines()[1 if found else 0 :]
