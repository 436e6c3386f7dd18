"""Durations and sizes with their units, as people write them.

A duration is a number and `ms`, `s`, `m` or `h`; it becomes seconds. A size is a number and `B`, `KB`, `MB`, `GB`
or `TB`; it becomes bytes. The datasystem counts shared memory in steps of 1024 * 1024 bytes and calls them MB
(`shared_memory_size_mb`). So `MB` means the same here, `GB` is 1024 MB, and `MiB` and `GiB` are other spellings.
"""

import re
from decimal import Decimal
from fractions import Fraction

DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$"

MB = 1024 * 1024
_LONGEST = 366 * 24 * 3600.0
_LARGEST = 1 << 60
_SECONDS = {"h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000)}
_BYTES = {"TB": 1 << 40, "GB": 1 << 30, "MB": MB, "KB": 1 << 10, "B": 1}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")


def parse_duration(value: object) -> float:
    """`"30s"` → 30.0 seconds. Raises ValueError that says what to write."""
    text = _text(value, "30s")
    if _NUMBER.fullmatch(text):
        raise ValueError(f"{text} has no unit; write {text}s for seconds, or use ms, m or h")
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f'"{text}" is no duration; write a number and ms, s, m or h, such as 30s')
    seconds = float(Fraction(match[1]) * _SECONDS[match[2]])
    if seconds > _LONGEST:
        raise ValueError(f"{text} is longer than a year; write a shorter duration")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` turns back into exactly `seconds`."""
    for unit, size in _SECONDS.items():
        count = round(seconds / float(size))
        if float(count * size) == seconds and (count or unit == "s"):
            return f"{count}{unit}"
    return f"{Decimal(repr(seconds)):f}s"


def parse_size(value: object) -> int:
    """`"512000MB"` → bytes. Raises ValueError that says what to write."""
    text = _text(value, "512MB")
    if _NUMBER.fullmatch(text):
        raise ValueError(f"{text} has no unit; write {text}MB, or use KB, GB or TB")
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(f'"{text}" is no size; write a number and B, KB, MB, GB or TB, such as 512MB')
    size = Fraction(match[1]) * _BYTES[match[2].replace("i", "")]
    if size.denominator != 1 or size > _LARGEST:
        raise ValueError(f"{text} is not a whole number of bytes below 1 EB; write a size such as 512MB")
    return int(size)


def format_size(size: int) -> str:
    """Bytes as the largest unit that divides them: 536870912 → `512MB`."""
    for unit, factor in _BYTES.items():
        if size % factor == 0 and size:
            return f"{size // factor}{unit}"
    return "0B"


def _text(value: object, example: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is no text with a unit; write one such as {example}")
    return str(getattr(value, "text", value)).strip()


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "a list" if isinstance(value, list | tuple) else "a mapping" if isinstance(value, dict) else str(value)
