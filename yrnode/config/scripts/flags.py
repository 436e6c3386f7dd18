"""A command's words → its flags."""

import re
from collections.abc import Mapping, Sequence

from yrnode.config.scripts import values

Value = bool | str | tuple[str, ...]
"""True for a flag alone, text for one value, a tuple for several. Parts of them may be unknown."""
Flags = dict[str, Value]

_NUMBER = re.compile(r"-[0-9.]+")
WRAPPERS = ("nohup", "exec", "env", "sudo", "setsid", "time", "command")


def flags(words: Sequence[str], short: Mapping[str, str] | None = None) -> tuple[list[str], Flags, list[str]]:
    """Words before any flag, flags with their values, and what is neither or is given twice.

    `short`: `-tp` → the long name. One with `=` has that value alone.
    """
    first: list[str] = []
    found: dict[str, list[str]] = {}
    odd: list[str] = []
    current: list[str] | None = None
    sealed = False
    for word in words:
        name, equals, value = word.partition("=")
        name = (short or {}).get(name, name)
        if name.startswith("--") and len(name) > 2 and values.known(name):
            key = name[2:]
            if key in found:
                odd.append(f"--{key}")
            current = found[key] = [value] if equals else []
            sealed = bool(equals)
        elif word.startswith("-") and not _NUMBER.fullmatch(word):
            odd.append(word)
            current = None
        elif current is None and not found:
            first.append(word)
        elif current is None or sealed:
            odd.append(word)
        else:
            current.append(word)
    return first, {key: _value(given) for key, given in found.items()}, odd


def _value(given: list[str]) -> Value:
    return tuple(given) if len(given) > 1 else given[0] if given else True


def words_of(value: Value) -> tuple[str, ...]:
    """A flag's values as words; none for a flag alone."""
    return value if isinstance(value, tuple) else () if isinstance(value, bool) else (value,)


def text_of(value: Value | None) -> str | None:
    """A flag's value where it has just one."""
    return value if isinstance(value, str) else None


def number_of(value: Value | None) -> int | None:
    """A flag's value as a number from 0 to a million."""
    text = text_of(value)
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else None


def unwrapped(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """A command without `nohup`, `env A=1` and the like; and the variables that these set."""
    left, own = list(words), {}
    while left and left[0] in WRAPPERS:
        wrapper = left.pop(0)
        while wrapper == "env" and left and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", left[0]):
            name, _, value = left.pop(0).partition("=")
            own[name] = value
    return own, left


def place(text: str) -> tuple[str, int | None]:
    """`http://HOST:PORT` or `HOST:PORT` as host and port; None for a port that is not known."""
    host, colon, port = text.rpartition("://")[2].rstrip("/").rpartition(":")
    if not colon:
        return port, None
    return host, int(port) if re.fullmatch(r"[0-9]{1,5}", port) else None
