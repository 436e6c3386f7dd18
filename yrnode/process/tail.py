"""The end of a component's own output."""

from __future__ import annotations

import os
from pathlib import Path

from yrnode.process.rotate import rotations

HEADER = "--- yrnode: {name} instance {instance} generation {generation}\n"
BYTES = 128 * 1024


def header(name: str, instance: str, generation: int) -> bytes:
    """The line that begins an instance's output."""
    return HEADER.format(name=name, instance=instance, generation=generation).encode()


def instance_lines(path: Path, instance: str) -> list[str]:
    """The last lines that this instance wrote, at most 128 KiB, over rotations too; empty where none can be read."""
    raw = b""
    for part in (path, *reversed(rotations(path))):
        raw = _end(part, BYTES - len(raw)) + raw
        if len(raw) >= BYTES or f" instance {instance} ".encode() in raw:
            break
    text = raw.decode("utf-8", "replace")
    _, found, rest = text.rpartition(f" instance {instance} ")
    return (rest if found else text).splitlines()[1 if found else 0 :]


def _end(path: Path, most: int) -> bytes:
    try:
        with open(path, "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - most))
            return f.read(most)
    except OSError:
        return b""
