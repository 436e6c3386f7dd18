"""Numbers as options take them."""

from __future__ import annotations

import argparse
import math


def count(text: str) -> int:
    """0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines; write 0 or more")
    return int(text)


def seconds(text: str) -> float:
    """More than 0, and finite."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; write more than 0")
    return found
