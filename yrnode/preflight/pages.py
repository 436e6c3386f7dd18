"""The memory page size: the datasystem's public wheels are built for 4 KiB pages."""

from __future__ import annotations

import os

from yrnode.preflight.finding import Finding, Look, good, warning

NAME = "page size"
STOCK = 4096


def look(at: Look) -> list[Finding]:
    return [judge(os.sysconf("SC_PAGE_SIZE"))]


def judge(size: int) -> Finding:
    """A warning, no blocker: a datasystem that was built for such pages looks like any other one."""
    if size <= STOCK:
        return good(NAME, f"{size} bytes", f"{STOCK} bytes")
    cure = f"install a datasystem that was built for pages of {size // 1024} KiB, or boot a kernel with 4 KiB pages"
    return warning(NAME, f"{size} bytes", f"{STOCK} bytes for the datasystem's public wheels", cure)
