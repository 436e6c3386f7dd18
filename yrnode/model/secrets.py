"""What must not be shown: values whose name says that they are secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

COVERED = "***"
_WORD = r"(?:api[-_]?key|access[-_]?key|private[-_]?key|key|token|secret|password|passwd|passphrase|credentials?)"
# The cluster's own name, and paths of keys: what is run is shown to the letter.
_PLAIN = frozenset({"initial-cluster-token", "key-file", "peer-key-file", "etcd_key"})
_NAME = re.compile(rf"(?:^|[-_.]){_WORD}(?:$|[-_.])", re.IGNORECASE)
_JSON = re.compile(rf'("(?:[^"]*[-_.])?{_WORD}(?:[-_.][^"]*)?"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE)
_URL = re.compile(r"(://)[^/\s]+@")


def secret(name: str) -> bool:
    """Whether a flag or variable of this name holds a secret."""
    plain = name.lstrip("-")
    return plain not in _PLAIN and _NAME.search(plain) is not None


def cover_text(text: str) -> str:
    """Text without user:password in addresses, and without secret values in JSON."""
    return _JSON.sub(rf'\1"{COVERED}"', _URL.sub(rf"\1{COVERED}@", text))


def cover_argv(argv: Sequence[str]) -> list[str]:
    """A command line with the values of secret flags covered; a flag may take several."""
    out: list[str] = []
    hiding = False
    for word in argv:
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            hiding = secret(name) and not equals
            out.append(f"{name}={COVERED}" if equals and secret(name) else cover_text(word))
        else:
            out.append(COVERED if hiding else cover_text(word))
    return out


def cover_env(env: Mapping[str, str]) -> dict[str, str]:
    return {name: COVERED if secret(name) else cover_text(value) for name, value in env.items()}
