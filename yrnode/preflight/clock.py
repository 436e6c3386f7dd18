"""The system clock is kept in time by somebody: the kernel's own word, whoever does it (chrony, ntpd, timesyncd)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from yrnode.preflight.finding import Finding, Look, good, not_here, warning

NAME = "clock"
STA_UNSYNC = 0x40
LARGEST_S = 0.5
"""Estimated error that is still no matter for logs of several nodes."""


class _Timex(ctypes.Structure):
    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        # the rest is not read; the kernel writes it
        ("rest", ctypes.c_long * 40),
    ]


@dataclass(frozen=True)
class Sync:
    """`error_s`: how far off the clock may be, as whoever keeps it estimates."""

    synchronised: bool
    error_s: float


def read() -> Sync | None:
    """None where the kernel does not tell, as in some containers."""
    # modes 0 asks and changes nothing
    timex = _Timex()
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else Sync(not timex.status & STA_UNSYNC, timex.esterror / 1e6)


def look(at: Look) -> list[Finding]:
    return [judge(read(), len(at.host.cluster.nodes))]


def judge(sync: Sync | None, nodes: int) -> Finding:
    if sync is None:
        return not_here(NAME, "the kernel does not tell")
    if not sync.synchronised:
        if nodes == 1:
            return good(NAME, "kept in time by nobody, which matters to several nodes only")
        cure = "start chronyd, ntpd or systemd-timesyncd on the host: timedatectl set-ntp true"
        return warning(NAME, "kept in time by nobody", "one time on all nodes", cure)
    error = f"estimated error {sync.error_s * 1000:.0f} ms"
    if sync.error_s > LARGEST_S:
        cure = "see chronyc tracking, or timedatectl timesync-status, for its source"
        return warning(NAME, error, f"at most {LARGEST_S} s", cure)
    return good(NAME, f"synchronised, {error}" if sync.error_s else "synchronised")
