"""Process titles and log lines: what ps, /proc and the log show of a process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time

PR_SET_NAME = 15
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_prefix = ""
_threshold = LEVELS.index(os.environ["VLLM_LOGGING_LEVEL"]) if os.environ.get("VLLM_LOGGING_LEVEL") in LEVELS else 1


def set_comm(name: str) -> None:
    """Set /proc/PID/comm (the kernel keeps 15 characters)."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def set_title(title: str) -> None:
    """Take `title` as comm and as the whole command line, as setproctitle does.

    Like setproctitle, it wipes /proc/PID/environ unless SPT_NOENV is set: here all of it, where setproctitle
    1.3.8 wipes what comes first and may leave the rest. The command line's memory is
    shared copy-on-write with the parent, so the parent keeps its own.
    """
    set_comm(title)
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    arg_start, arg_end, env_start, env_end = (int(x) for x in fields[45:49])
    room = arg_end - arg_start
    if room > 1:
        text = title.encode()[: room - 1]
        ctypes.memmove(arg_start, text.ljust(room, b"\0"), room)
    if "SPT_NOENV" not in os.environ and env_end > env_start:
        for key, value in os.environ.items():
            os.putenv(key, value)  # C code (the datasystem's client) must still find them
        ctypes.memset(env_start, 0, env_end - env_start)


def set_prefix(name: str) -> None:
    """Start every log line of this process with `(name pid=N)`."""
    global _prefix  # noqa: PLW0603
    _prefix = f"({name} pid={os.getpid()}) "


def log(level: str, text: str) -> None:
    """Write one record in vLLM's manner; a full disk or a closed pipe is no reason to die."""
    if LEVELS.index(level) < _threshold:
        return
    frame = sys._getframe(1)
    where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    stamp = time.strftime("%m-%d %H:%M:%S")
    write("".join(f"{_prefix}{level} {stamp} [{where}] {line}\n" for line in text.splitlines()))


def uvicorn(text: str) -> None:
    """Write one line in the manner of vLLM's web server, which knows no prefix."""
    write(f"INFO:     {text}\n")


def write(text: str) -> None:
    """One write per record, so that processes that share a log do not cut each other's lines."""
    with contextlib.suppress(OSError):
        os.write(1, text.encode())
