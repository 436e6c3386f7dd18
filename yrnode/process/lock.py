"""One yrnode a node: a lock on a file of the state directory, released by the kernel whatever happens."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from yrnode.model.errors import UsageError

NAME = "yrnode.lock"
PATIENCE_S, AGAIN_S = 0.2, 0.01


def held(state_dir: Path) -> bool:
    """Whether a yrnode runs this node now. OSError where that cannot be seen."""
    try:
        fd = os.open(state_dir / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _taken(fd: int) -> bool:
    """Whether the lock is ours now. Whoever only looks holds it for an instant."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(AGAIN_S)
        else:
            return True


class NodeLock:
    """Held as long as this object lives. UsageError where another yrnode holds it."""

    def __init__(self, state_dir: Path) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        path = state_dir / NAME
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise UsageError(f"{path} cannot be opened: {e.strerror}; remove it, or use another state_dir") from None
        if not _taken(self._fd):
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise UsageError(
                f"another yrnode (pid {holder}) runs this node from {state_dir}; stop it, or use another state_dir"
            )
        # on a full disk the lock holds all the same, only nobody can read whose it is
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def __enter__(self) -> NodeLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
