"""How a process ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Exit:
    """`code` is the exit code, `signal` the number of the signal that ended it; both None where nobody could see."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            try:
                return f"killed by {signal.Signals(self.signal).name}"
            except ValueError:
                return f"killed by signal {self.signal}"
        return "ended, exit code unknown" if self.code is None else f"exit code {self.code}"
