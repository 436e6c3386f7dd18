"""Small JSON files that are whole or absent: written beside, synced, renamed, and the folder synced."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

LONGEST = 1024 * 1024


class Unreadable(Exception):
    """There is something at the path that is no such file: one line that says what."""


def write(path: Path, value: Any) -> None:
    """OSError when it cannot be written; the file that was there is then still whole."""
    # at once: json.dump asks a slow encoder, and writes each of its pieces
    content = json.dumps(value, ensure_ascii=False).encode() + b"\n"
    beside = path.with_name(f".{path.name}.new")
    try:
        with _new(beside) as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _new(path: Path) -> BinaryIO:
    try:
        return open(path, "wb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb")


def read(path: Path) -> dict[str, Any] | None:
    """The object in the file, None where there is no file. Unreadable for anything else."""
    try:
        with open(path, "rb") as f:
            content = f.read(LONGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise Unreadable(f"{path}: {e.strerror}") from None
    if not content:
        raise Unreadable(f"{path}: 0 bytes")
    try:
        value = json.loads(content)
    except ValueError:
        raise Unreadable(f"{path}: not whole ({len(content)} bytes)") from None
    if not isinstance(value, dict):
        raise Unreadable(f"{path}: no object")
    return value


def set_aside(path: Path) -> Path | None:
    """Rename what is at the path out of the way, kept for people; its new place, None where that fails too."""
    for i in range(1, 1000):
        aside = path.with_name(f"{path.name}.unreadable-{i}")
        if not os.path.lexists(aside):
            try:
                os.rename(path, aside)
            except OSError:
                return None
            return aside
    return None
