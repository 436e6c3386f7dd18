"""Orphans of our children come back to us.

What daemonises (the worker that dscli starts) would else belong to PID 1, and its death would be invisible.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
