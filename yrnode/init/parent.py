"""A container's first process: starts the daemon, reaps what is orphaned, passes signals on, and sees a daemon hang.

The daemon's children outlive it as orphans of this process, and the next daemon takes them over. So little happens
here that nothing should ever end it: where it is PID 1, its end is the end of everything.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from yrnode.init.contract import DETACHED, MARK, SIGNALS
from yrnode.init.fate import STEADY_S, Over, fate, pause_s
from yrnode.init.feed import Feed
from yrnode.process.subreaper import become_subreaper

log = logging.getLogger("yrnode.init")

WATCHDOG_S = 30.0
START_S = 180.0
"""Until the daemon's first round: it sources scripts and looks at the host."""
ABORT_S = 10.0
"""What a daemon gets after SIGABRT, to write where it hung."""
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.001, 1.0
_REAPED_AT_ONCE = 256
_OURS = ("INVOCATION_ID", "SYSTEMD_EXEC_PID", "WATCHDOG_PID")
"""What a systemd above us has said about this very process, and not about the daemon."""


class Init:
    """`argv`: the daemon's program, as an absolute path, and its arguments. `watchdog_s`: for how long a daemon that
    supervises may make no round."""

    def __init__(self, argv: Sequence[str], watchdog_s: float = WATCHDOG_S) -> None:
        self._argv = list(argv)
        self._watchdog_s = watchdog_s
        self._look_s = min(LONGEST_LOOK_S, watchdog_s / 4)
        self._code: int | None = None
        self._pid: int | None = None
        self._born = self._start_at = self._looked = 0.0
        self._served = self._stopping = self._told = False
        self._failures = 0
        self._limit_s: float | None = None
        self._silent_s = 0.0
        self._blamed: signal.Signals | None = None

    def run(self) -> int:
        """The exit code: the daemon's own where it refused its first start, 0 after an ordered stop."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            become_subreaper()
        except OSError as e:
            log.warning("orphans will go to another process, not to this one: %s", e)
        self._feed = Feed()
        self._looked = time.monotonic()
        while self._code is None:
            try:
                self._turn()
            except Exception:
                # whatever is wrong here, our end would be worse
                log.exception("a fault of the init itself")
                time.sleep(LONGEST_LOOK_S)
        self._feed.close()
        return self._code

    def _turn(self) -> None:
        now = time.monotonic()
        if self._pid is None and now >= self._start_at:
            self._start(now)
        patience = self._look_s if self._pid is not None else min(self._look_s, max(0.0, self._start_at - now))
        # not sigtimedwait: after SIGSTOP and SIGCONT, Python's own returns a signal that never came
        signal.setitimer(signal.ITIMER_REAL, max(patience, SHORTEST_LOOK_S))
        self._obey(signal.sigwaitinfo(SIGNALS).si_signo)
        self._watch()
        self._reap()

    def _start(self, now: float) -> None:
        try:
            pid = os.fork()
        except OSError as e:
            self._failures += 1
            self._start_at = now + max(LONGEST_LOOK_S, pause_s(self._failures))
            log.error("no further process can be started: %s", e.strerror)
            return
        if pid == 0:
            self._become_daemon()
        self._pid, self._born = pid, now
        self._limit_s, self._silent_s, self._blamed = START_S, 0.0, None
        self._told = False
        if self._stopping:
            self._tell_to_stop()

    def _become_daemon(self) -> NoReturn:
        """In the child. Its own session: a terminal's Ctrl-C comes to the init alone, which passes it on once."""
        try:
            os.setsid()
            kept = {name: value for name, value in os.environ.items() if name not in _OURS}
            own = {
                MARK: str(os.getppid()),
                "NOTIFY_SOCKET": self._feed.address,
                "WATCHDOG_USEC": str(int(self._watchdog_s * 1e6)),
            }
            os.execve(self._argv[0], self._argv, {**kept, **own})  # noqa: S606  no shell is wanted
        except OSError as e:
            with contextlib.suppress(OSError):
                os.write(2, f"yrnode: cannot start {self._argv[0]}: {e.strerror}\n".encode())
        finally:
            os._exit(127)

    def _obey(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            if not self._stopping:
                log.info("%s: everything is stopped in order", _signal_name(number))
                self._stopping, self._failures, self._start_at = True, 0, 0.0
            self._tell_to_stop()
        elif number in (signal.SIGHUP, signal.SIGUSR1):
            self._send(number)

    def _tell_to_stop(self) -> None:
        """Once each daemon: a second word could meet one that is just leaving, and kill it."""
        if self._pid is not None and not self._told:
            self._told = True
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        # nobody else reaps it, so the pid is still its own
        if self._pid is not None:
            os.kill(self._pid, number)

    def _watch(self) -> None:
        """Is the daemon fed? Only time counts in which we ran ourselves: what stops a container stops us both."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, self._look_s), now
        if self._pid is None:
            return
        said = self._feed.heard(self._pid)
        if "READY=1" in said:
            self._served = True
            self._limit_s = self._watchdog_s if self._blamed is None else self._limit_s
        self._silent_s = 0.0 if self._blamed is None and "WATCHDOG=1" in said else self._silent_s + passed
        if self._limit_s is None or self._silent_s <= self._limit_s:
            return
        if self._blamed is None:
            self._blamed, next_s = signal.SIGABRT, ABORT_S
        else:
            # after that there is nothing more to be done
            self._blamed, next_s = signal.SIGKILL, None
        log.error("yrnode (pid %d) made no round for %.0f s: %s", self._pid, self._silent_s, self._blamed.name)
        self._limit_s, self._silent_s = next_s, 0.0
        self._send(self._blamed)
        # one that is stopped could not die of it
        self._send(signal.SIGCONT)

    def _reap(self) -> None:
        for _ in range(_REAPED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._ended(os.waitstatus_to_exitcode(status))

    def _ended(self, how: int) -> None:
        now = time.monotonic()
        lived, pid, self._pid = now - self._born, self._pid, None
        if how == DETACHED or lived >= STEADY_S:
            self._failures = 0
        if how != DETACHED:
            self._failures += 1
        found = fate(how if how >= 0 else None, served=self._served, stopping=self._stopping, failures=self._failures)
        if isinstance(found, Over):
            self._code = found.code
            if self._stopping and found.code:
                log.error("the ordered stop has failed: what still runs is left to whatever ends this container")
            return
        self._start_at = now + found.after_s
        words = f"was ended by {_signal_name(-how)}" if how < 0 else f"ended with exit code {how}"
        if how != DETACHED:
            log.warning("yrnode (pid %d) %s: another one in %.1f s; the rest runs on", pid, words, found.after_s)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def same_command() -> list[str]:
    """This process's own command line. A script is started as one, so that the daemon's name stays yrnode."""
    words = sys.orig_argv[1:]
    if words and os.path.isabs(words[0]) and os.access(words[0], os.X_OK):
        return words
    return [sys.executable, *words]
