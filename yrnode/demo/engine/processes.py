"""Child processes: forked before anything heavy is imported, so each costs a few megabytes and milliseconds."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from yrnode.demo.engine.titles import log


def spawn(run: Callable[..., int], *args: Any, close: Iterable[socket.socket]) -> int:
    """Fork a child that ends with what `run(*args)` returns; it closes `close` first. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for sock in close:
            sock.close()
        code = run(*args)
    except BaseException:
        log("ERROR", traceback.format_exc())
    os._exit(code)


def descendants(pid: int) -> list[int]:
    """Children of a process, and theirs."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = [int(word) for word in f.read().split()]
    except OSError:
        return []
    return children + [d for child in children for d in descendants(child)]


def end_all(pids: Iterable[int], number: int, patience: float) -> None:
    """Signal our own children and their descendants; wait for the children, at most `patience` seconds."""
    left = list(pids)
    for pid in left + [d for child in left for d in descendants(child)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if not reaped(pid)]
        if left:
            time.sleep(0.005)


def reaped(pid: int) -> bool:
    """Whether a child has ended (and is now reaped)."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
