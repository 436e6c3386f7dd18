"""What a container's first process and the daemon below it agree on. Both may be of different versions."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

MARK = "YRNODE_INIT"
"""Variable with the init's pid: whoever has it as his parent is the daemon, and no init himself."""
DETACHED = 75
"""The daemon's exit code after SIGUSR1: its components run on, and want another daemon. sysexits' "try again"."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM)
"""Blocked in the init, which waits for them, and so at first in the daemon: a signal that comes before the daemon can
handle it is kept, and does not kill it."""


def below_init(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether our parent is yrnode's own init."""
    return environ.get(MARK) == str(os.getppid())


def let_through(*signals: signal.Signals) -> None:
    """From here on they are handled."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
