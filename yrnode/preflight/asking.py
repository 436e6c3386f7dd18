"""Programs that are asked about themselves: each has its time, and whatever it has started ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from yrnode.model.cover import short

TIMEOUT_S = 5.0
_LEAST_S = 0.05
"""To read what one has said that has long ended."""
_KILLED_S = 0.5
"""What a killed program gets until it is gone. One that the kernel holds, in a driver, is left to it."""


@dataclass(frozen=True)
class Answer:
    """`text`: its standard output. `error`: why there is no good answer, else empty."""

    text: str
    error: str = ""


def ask(argv: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> Answer:
    """Run it to its end, without input, from `/`."""
    return ask_all([argv], env, timeout_s)[0]


def ask_all(
    argvs: Sequence[Sequence[str]], env: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> list[Answer]:
    """As `ask`, all of them at once, in one and the same time."""
    running = [_begin(argv, env) for argv in argvs]
    deadline = time.monotonic() + timeout_s
    return [_end(begun, deadline, f"no answer within {timeout_s:g} s") for begun in running]


def _begin(argv: Sequence[str], env: Mapping[str, str] | None) -> subprocess.Popen[bytes] | str:
    try:
        return subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as e:
        return f"{argv[0]}: {e.strerror}"


def _end(begun: subprocess.Popen[bytes] | str, deadline: float, late: str) -> Answer:
    if isinstance(begun, str):
        return Answer("", begun)
    try:
        out, err = begun.communicate(timeout=max(_LEAST_S, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(begun.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            begun.wait(_KILLED_S)
        for pipe in (begun.stdout, begun.stderr):
            if pipe is not None:
                pipe.close()
        return Answer("", late)
    text = out.decode("utf-8", "replace")
    if begun.returncode == 0:
        return Answer(text)
    words = (err.decode("utf-8", "replace").strip() or text.strip() or "no message").splitlines()
    return Answer(text, f"exit code {begun.returncode}: {short(words[-1], 200)}")
