"""Covers secrets in free text, such as logs: by how they are named, by how they look, and those that are known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, quote_plus, unquote

from yrnode.model.secrets import COVERED, secret

SHORTEST = 4
"""A known secret that is shorter is covered only where its name stands beside it: it may be part of any word."""
_ALONE = 8
"""A known secret that is shorter is covered only where it stands alone."""
_HARMLESS = re.compile(r"true|false|none|null|\d{1,5}", re.IGNORECASE)

# `key` alone is not among them: logs are full of keys that are none.
_WORD = (
    r"(?:(?:access|auth|bearer|client|id|refresh|session)?token|(?:api|access|private|secret|encryption)[-_ ]?key"
    r"|secret|password|passwd|passphrase|pwd|credentials?|authorization)"
)
# what names a place of a secret is none
_NAME = rf"(?<![a-z0-9]){_WORD}(?:[-_.](?!(?:file|path|dir)\b)[\w.-]*)?"
_PLACE = re.compile(r"[-_.](?:file|path|dir)$", re.IGNORECASE)
_VALUE = (
    r"(?:\[[^\]\n]*\]?"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?"
    r"|\\+\"(?:(?!\\+\")[^\n])*(?:\\+\")?|\\+'(?:(?!\\+')[^\n])*(?:\\+')?"
    r"|(?:bearer|basic|token)\s+\S+"
    r"|[^\s\"'\\,;&)}\]]+)"
)
_GIVEN = re.compile(rf"({_NAME}\\*[\"']?\s{{0,3}}(?:=>|[:=])\s{{0,3}}){_VALUE}", re.IGNORECASE)
# a flag's value may be the next word, also of a list of words
_FLAG = re.compile(rf"(--?[\w-]*{_NAME}(?:\\*[\"']\s*,\s*|\s+))(?!-){_VALUE}", re.IGNORECASE)
_URL = re.compile(r"(://)[^/\s\"']+@")
_LOOKS = re.compile(
    r"(\bbearer\s+)[\w.~+/=-]{8,}"
    r"|()(?:\bsk-[\w-]{16,}|\bhf_\w{20,}|\bgh[pousr]_\w{20,}|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
    re.IGNORECASE,
)
_PEM = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def short(text: str, most: int) -> str:
    """At most so many characters, cut between words: half a secret is not known for one any more."""
    if len(text) <= most:
        return text
    words, _, _ = text[: most - 1].rpartition(" ")
    return f"{words} …" if words else "…"


class Cover:
    """`known`: values that must not be seen wherever they stand, as they are, escaped, or quoted for a URL."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        words = {w for value in known for w in _written(value)}
        parts = [
            re.escape(w) if len(w) >= _ALONE else rf"(?<![a-zA-Z0-9]){re.escape(w)}(?![a-zA-Z0-9])"
            for w in sorted(words, key=len, reverse=True)
        ]
        self._known = re.compile("|".join(parts)) if parts else None

    def __call__(self, text: str) -> str:
        """As text that any file and any store can hold: half a character, as files' names have, becomes a number."""
        text = text.encode("utf-8", "backslashreplace").decode()
        if self._known is not None:
            text = self._known.sub(COVERED, text)
        text = _PEM.sub(rf"\1{COVERED}", text)
        text = _URL.sub(rf"\1{COVERED}@", text)
        text = _FLAG.sub(_keep_name, text)
        text = _GIVEN.sub(_keep_name, text)
        return _LOOKS.sub(lambda m: (m[1] or "") + COVERED, text)


def values_of(data: object, name: str = "") -> list[str]:
    """The secrets in nested data: what stands under a name that says so, and passwords in addresses."""
    if isinstance(data, Mapping):
        return [v for key, value in data.items() for v in values_of(value, name if _hides(name) else f"{key}")]
    if isinstance(data, str):
        return [data, *_in_urls(data)] if _hides(name) else _in_urls(data)
    if isinstance(data, Sequence):
        words = [f"{w}" for w in data]
        found = [v for value in data for v in values_of(value, name)]
        return found + _of_flags(words)
    return []


def _hides(name: str) -> bool:
    return secret(name) and _PLACE.search(name) is None


def _of_flags(words: Sequence[str]) -> list[str]:
    """Of a command line: as `cover_argv` sees it."""
    found, hiding = [], False
    for word in words:
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            hiding = _hides(name) and not equals
            found += [value] if equals and _hides(name) else []
        elif hiding:
            found.append(word)
    return found


def _in_urls(text: str) -> list[str]:
    """The password, or the whole where no user stands before it."""
    return [m[1].rpartition(":")[2] for m in re.finditer(r"://([^/\s\"']+)@", text)]


def _written(value: str) -> set[str]:
    value = value.strip()
    if len(value) < SHORTEST or _HARMLESS.fullmatch(value):
        return set()
    urls = (quote(value, safe=""), quote_plus(value, safe=""))
    forms = (value, unquote(value), *urls, json.dumps(value)[1:-1], repr(value)[1:-1])
    return {f for f in forms if len(f) >= SHORTEST}


def _keep_name(match: re.Match[str]) -> str:
    """In the quotes that it had, so that JSON stays JSON."""
    value = match[0][len(match[1]) :]
    opened = re.match(r"\\*[\"']", value)
    mark = opened[0] if opened else ""
    closed = mark if mark and len(value) >= 2 * len(mark) and value.endswith(mark) else ""
    inside = f"{mark}{COVERED}{closed}" if mark else COVERED
    return match[1] + (f'["{COVERED}"]' if value.startswith("[") and value.endswith("]") else inside)
