"""Versions of programs and packages, compared as people mean them. Pure."""

from __future__ import annotations

import re

_PARTS = re.compile(r"^v?(\d+(?:\.\d+)*)(.*)$")
# a `b` after a dot is a build of the release itself (8.5.0.B030); PEP 440 writes its betas without one
_BEFORE = re.compile(r"^(?:[.\-_]?(dev|alpha|a|beta|rc|t)|(b)(?=\d))\.?(\d*)", re.IGNORECASE)
_FINAL = (9, 0)
_ORDER = {"dev": 0, "alpha": 1, "a": 1, "t": 1, "beta": 2, "b": 2, "rc": 3}
_LENGTH = 4

Key = tuple[tuple[int, ...], tuple[int, int]]


def key(text: str) -> Key | None:
    """What sorts versions: 8.2.RC1 and 0.18.0rc1 come before 8.2 and 0.18.0, 8.5.0.B030 is 8.5.0. None for what is no
    version."""
    match = _PARTS.match(text.strip())
    if match is None:
        return None
    numbers = tuple(int(n) for n in match[1].split("."))
    padded = (*numbers, *(0 for _ in range(_LENGTH - len(numbers))))
    before = _BEFORE.match(match[2])
    return padded, (_ORDER[(before[1] or before[2]).lower()], int(before[3] or 0)) if before else _FINAL


def at_least(text: str, least: str) -> bool | None:
    """Whether `text` is that version or a later one; None where one of them is no version."""
    own, wanted = key(text), key(least)
    return None if own is None or wanted is None else own >= wanted
