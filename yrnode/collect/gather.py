"""Takes what sources have into an archive: bounded in size and time, covered, and with a word on what is missing."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from yrnode.collect.archive import Archive
from yrnode.model.cover import Cover

AT_ONCE = 4
MOST_BYTES = 512 * 1024**2
"""Of all files together, before they are compressed."""
MANIFEST = "manifest.json"
_LONGEST_REASON = 500


class Missing(Exception):
    """That a source has nothing, in one line."""


@dataclass(frozen=True)
class Source:
    """One file of the archive. `read()` gives its content, or raises Missing or OSError."""

    name: str
    read: Callable[[], bytes]


@dataclass(frozen=True)
class Entry:
    """What became of a source: bytes in the archive, or why there are none."""

    name: str
    bytes: int = 0
    missing: str = ""


def gather(
    archive: Archive, sources: Sequence[Source], cover: Cover, about: dict[str, Any], seconds: float
) -> list[Entry]:
    """Every source in the archive, covered, and the manifest. What has not come within `seconds` is missing.

    A read that hangs, as on a dead network file system, is left behind in its thread.
    """
    deadline, entries, taken = time.monotonic() + seconds, list[Entry](), 0
    # a name that stands twice is one file
    waiting = {s.name: s for s in sources}
    sources = tuple(waiting.values())
    with contextlib.closing(_read(sources, cover, deadline)) as found:
        for name, data, failed in found:
            waiting.pop(name)
            full = f"left out: the archive already holds {taken // 1024**2} MB of other files"
            why = failed or (full if taken + len(data) > MOST_BYTES else "")
            if why:
                entries.append(Entry(name, missing=cover(" ".join(why.split())[:_LONGEST_REASON])))
                continue
            archive.add(name, data)
            taken += len(data)
            entries.append(Entry(name, len(data)))
    entries += [Entry(name, missing=f"not read within {seconds:g} s") for name in waiting]
    entries.sort(key=lambda e: e.name)
    said = {**about, "took_s": round(time.monotonic() - deadline + seconds, 1)}
    manifest = json.dumps({**said, "files": [asdict(e) for e in entries]}, indent=1)
    archive.add(MANIFEST, cover(manifest).encode())
    return entries


def _read(sources: Sequence[Source], cover: Cover, deadline: float) -> Generator[tuple[str, bytes, str], None, None]:
    """Name, content and why there is none, in the order in which they come, until the deadline. Programs that still
    run then are ended."""
    todo: queue.SimpleQueue[Source] = queue.SimpleQueue()
    # bounded, so that what is read does not pile up in memory
    done: queue.Queue[tuple[str, bytes, str]] = queue.Queue(AT_ONCE)
    for source in sources:
        todo.put(source)

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                source = todo.get_nowait()
            except queue.Empty:
                return
            done.put(_one(source, cover))

    # daemons: one that hangs must not hold up the end of the program
    for _ in range(AT_ONCE):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in sources:
            yield done.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        return
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()
        for child in tuple(_running):
            _end_program(child)


def _one(source: Source, cover: Cover) -> tuple[str, bytes, str]:
    try:
        data = source.read()
        if not data:
            return source.name, b"", "empty"
        return source.name, cover(data.decode("utf-8", "replace")).encode(), ""
    except Missing as e:
        return source.name, b"", str(e)
    except OSError as e:
        return source.name, b"", f"{e.filename or source.name}: {e.strerror or e}"
    except Exception as e:
        # one source that is broken must not cost the others
        return source.name, b"", f"{type(e).__name__}: {e}"


def tail(paths: Sequence[Path], most: int) -> bytes:
    """The end of files that follow one another, oldest first, `most` bytes in all. Missing where there is none."""
    parts: list[bytes] = []
    there = [p for p in paths if p.exists()]
    if not there:
        raise Missing("not there")
    left = most
    for path in reversed(there):
        if left <= 0:
            break
        try:
            part = _end(path, left)
        except FileNotFoundError:
            # rotated away meanwhile
            continue
        parts.insert(0, part)
        left -= len(part)
    return b"".join(parts)


def _end(path: Path, most: int) -> bytes:
    """From a whole line on, where the beginning is left out."""
    # not blocking: somebody may have put a named pipe there
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as f:
        info = os.fstat(f.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise Missing("no regular file")
        size = info.st_size
        f.seek(max(0, size - most))
        data = f.read(most)
    if size <= most:
        return data
    # a line that has lost its beginning may have lost the name of what it gives away
    _, _, whole = data.partition(b"\n")
    return b"--- the beginning is left out\n" + whole


def command(words: Sequence[str], seconds: float, accept: Sequence[int] = (0,)) -> bytes:
    """Its output. Missing where it cannot be run, takes too long, or ends otherwise than `accept` says."""
    pipe = subprocess.PIPE
    try:
        # a session of its own: what it starts is ended with it
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
    except FileNotFoundError:
        raise Missing(f"there is no {words[0]} here") from None
    except OSError as e:
        raise Missing(f"{words[0]}: {e.strerror}") from None
    _running.add(child)
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Missing(f"{words[0]} has not ended within {seconds:g} s") from None
    finally:
        _running.discard(child)
        _end_program(child)
    if child.returncode not in accept or not out:
        raise Missing(err.decode("utf-8", "replace").strip() or f"exit code {child.returncode}, and no word")
    return out


_running: set[subprocess.Popen[bytes]] = set()


def _end_program(child: subprocess.Popen[bytes]) -> None:
    """With all of its session, whose number is taken as long as we have not waited for it."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
