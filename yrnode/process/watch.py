"""See a process end: a pidfd on the loop, or polling where the kernel or its filter has none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from yrnode.process import table
from yrnode.process.exit import Exit

POLL_S = 0.5


class Watch:
    """Calls `ended` once, on the loop, when `proc` is gone. Only this object reaps `proc`."""

    def __init__(self, proc: table.Proc, ended: Callable[[Exit], None]) -> None:
        self.proc = proc
        self.exit: Exit | None = None
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._fd: int | None = None
        try:
            self._fd = os.pidfd_open(proc.pid)
        except ProcessLookupError:
            # gone already, and reaped by somebody else
            self._soon(Exit())
        except OSError:
            # the first look is the loop's too: whoever made this object must have it in hand before `ended` is called
            self._timer = self._loop.call_later(0, self._poll)
        else:
            if self._same():
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._soon(Exit())

    def _soon(self, how: Exit) -> None:
        self._timer = self._loop.call_later(0, self._finish, how)

    def _same(self) -> bool:
        now = table.read(self.proc.pid)
        return now is not None and now.start_ticks == self.proc.start_ticks

    def _readable(self) -> None:
        self._finish(self._reap())

    def _poll(self) -> None:
        if table.alive(self.proc):
            self._timer = self._loop.call_later(POLL_S, self._poll)
        else:
            self._finish(self._reap())

    def _reap(self) -> Exit:
        how, who = (os.P_PIDFD, self._fd) if self._fd is not None else (os.P_PID, self.proc.pid)
        try:
            info = os.waitid(how, who, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return Exit()
        if info is None:
            return Exit()
        if info.si_code == os.CLD_EXITED:
            return Exit(code=info.si_status)
        return Exit(signal=info.si_status)

    def _finish(self, how: Exit) -> None:
        if self.exit is None:
            self.exit = how
            self.close()
            self._ended(how)

    def send(self, number: int) -> None:
        """Signal this very process; nothing happens when it is gone."""
        if self.exit is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._fd is not None:
                signal.pidfd_send_signal(self._fd, number)
            elif table.alive(self.proc):
                os.kill(self.proc.pid, number)

    def reap(self) -> None:
        """Reap the process now if it is a zombie that the loop has not seen yet; `ended` is not called."""
        if self.exit is None and not table.alive(self.proc):
            self.exit = self._reap()

    def close(self) -> None:
        """Stop watching. The process is left as it is."""
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
