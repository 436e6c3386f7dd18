"""What an import has to tell beside the cluster file."""

from dataclasses import dataclass, field
from typing import Any

from yrnode.config.scripts.values import shown
from yrnode.model.secrets import COVERED, cover_argv, secret

_LONGEST = 120


@dataclass(frozen=True)
class Note:
    """A place in a script, and why it is told."""

    file: str
    line: int
    """0 where it is about no line."""
    text: str
    why: str

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"file": self.file, "line": self.line or None, "text": self.text, "why": self.why}

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{where}{self.text}: {self.why}" if self.text else f"{where}{self.why}"


@dataclass
class Notes:
    """Three lists: what was not read, what was dropped on purpose, what somebody has to look at."""

    not_read: list[Note] = field(default_factory=list)
    dropped: list[Note] = field(default_factory=list)
    open: list[Note] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether all was read and nothing is open."""
        return not self.not_read and not self.open


def add(notes: list[Note], file: str, line: int, text: str, why: str) -> None:
    """Add one, once, with secrets covered, on one line, and with nothing in it that a terminal would obey."""
    note = Note(file, line, _printable(brief(text)), _printable(why))
    if note not in notes:
        notes.append(note)


def brief(text: str) -> str:
    """Text of a script on one line, shortened, secrets covered."""
    words = [_assignment(word) for word in shown(text).replace("\\\n", " ").split()]
    line = " ".join(cover_argv(words))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _assignment(word: str) -> str:
    name, equals, _ = word.partition("=")
    return f"{name}={COVERED}" if equals and not name.startswith("-") and secret(name) else word
