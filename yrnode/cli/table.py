"""Tables for a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_GAP = "  "


def plain(value: object) -> str:
    """Text on one line, without what would move a terminal's cursor: evidence is other programs' output."""
    if value is None or value == "":
        return "-"
    return "".join(c if c.isprintable() else " " for c in str(value))


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a table. On a terminal the last column is cut at the right edge; elsewhere nothing is."""
    cells = [[title.upper() for title in titles], *([plain(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles) - 1)]
    lines = []
    for row in cells:
        head = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append(cut(_GAP.join([*head, row[-1]]).rstrip()))
    return lines


def cut(line: str) -> str:
    """The line, cut to the terminal's width if stdout is one."""
    if not sys.stdout.isatty():
        return line
    width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
    return line if len(line) <= width else line[: width - 1] + "…"


def ago(then: str, now: str) -> str:
    """The time between two ISO moments, in its two largest units."""
    from datetime import datetime

    return span((datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds())


def span(seconds: float) -> str:
    """A time in its two largest units."""
    seconds = int(seconds)
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // small}{smaller}"
    return f"{max(seconds, 0)}s"
