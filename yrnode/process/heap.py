"""How glibc keeps memory that a process has given back: too generously for a daemon that mostly sleeps."""

from __future__ import annotations

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_ARENA_MAX = -1, -8
KEPT_BYTES = 64 * 1024
ARENAS = 2


def be_thrifty() -> None:
    """Before there are threads: few arenas, and what is free at the heap's end goes back. Nothing on another libc."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        libc.mallopt(M_ARENA_MAX, ARENAS)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
