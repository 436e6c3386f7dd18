"""Orphans that came back to us are reaped.

Zombies are waited for by pid, never with waitpid(-1), which would steal the exit status of a watched child.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection

from yrnode.process import table

_SETTLE_S = 0.2


def _any_dead() -> bool:
    """Whether any child is a zombie, which mostly a watch has reaped by now. The kernel knows without a scan."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


class Reaper:
    """Reaps zombie children that nobody watches. `watched` gives the pids that others wait for."""

    def __init__(self, watched: Callable[[], Collection[int]]) -> None:
        self._watched = watched
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_signal_handler(signal.SIGCHLD, self._soon)

    def _soon(self) -> None:
        # many orphans can end at once: one scan serves them all
        if self._timer is None:
            self._timer = self._loop.call_later(_SETTLE_S, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        if not _any_dead():
            return
        mine, watched = os.getpid(), self._watched()
        for proc in table.scan():
            if proc.ppid == mine and proc.state == "Z" and proc.pid not in watched:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(proc.pid, os.WNOHANG)

    def close(self) -> None:
        """Reap what there is, and leave the signal alone again."""
        if self._timer is not None:
            self._timer.cancel()
        self._sweep()
        self._loop.remove_signal_handler(signal.SIGCHLD)
