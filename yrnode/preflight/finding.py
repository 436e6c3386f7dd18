"""What one check of the host says: what was found, what is needed, and the cure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from yrnode.components.host import Host
from yrnode.model.spec import ComponentSpec

T = TypeVar("T")
UNVERIFIED = "unverified on hardware"
"""Of what was written from public documents and has not met a real NPU yet."""


class Verdict(str, Enum):
    """`blocker`: `check` ends with 1. `not here`: this host has nothing that could be judged."""

    BLOCKER = "blocker"
    WARNING = "warning"
    GOOD = "good"
    NOT_HERE = "not here"


@dataclass(frozen=True)
class Finding:
    """One line of the preflight. All words are for people; `needed` and `cure` may be empty.

    `refuses`: `run` does not start over this blocker, because it is certain that nothing would come of it. What has
    not met the hardware yet, and what would only find less in the cache, blocks for `check` alone.
    """

    name: str
    verdict: Verdict
    found: str
    needed: str = ""
    cure: str = ""
    refuses: bool = False

    @property
    def line(self) -> str:
        """All of it in one line that ends with what to do; `found` alone says it where nothing is `needed`."""
        words = f"{self.name}: {self.found} (needed: {self.needed})" if self.needed else self.found
        return f"{words}; {self.cure}" if self.cure else words


class Once:
    """Answers that are asked for once, whoever of several threads comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, Any] = {}

    def get(self, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._answers:
                self._answers[name] = make()
            answer: T = self._answers[name]
            return answer


@dataclass(frozen=True)
class Look:
    """Whom the checks look at. `runs`: something of this node does, so what it holds is no hindrance. `root`: where
    /proc and /usr are found. `once`: what several checks ask for.
    """

    host: Host
    specs: Sequence[ComponentSpec]
    runs: bool = False
    root: Path = Path("/")
    once: Once = field(default_factory=Once)

    def read(self, path: str) -> str:
        """A small text file of the host; empty where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace")
        except OSError:
            return ""


def good(name: str, found: str, needed: str = "") -> Finding:
    return Finding(name, Verdict.GOOD, found, needed)


def warning(name: str, found: str, needed: str, cure: str) -> Finding:
    return Finding(name, Verdict.WARNING, found, needed, cure)


def blocker(name: str, found: str, needed: str, cure: str) -> Finding:
    return Finding(name, Verdict.BLOCKER, found, needed, cure)


def refusal(name: str, found: str, needed: str, cure: str) -> Finding:
    """A blocker that `run` refuses by too."""
    return Finding(name, Verdict.BLOCKER, found, needed, cure, refuses=True)


def not_here(name: str, why: str) -> Finding:
    return Finding(name, Verdict.NOT_HERE, why)


def refused(name: str, lines: Iterable[str]) -> list[Finding]:
    """Lines such as `what is wrong; what to do`, by which `run` refuses too; `line` gives each back as it was."""
    parts = [line.partition("; ") for line in lines]
    return [refusal(name, found, "", cure) for found, _, cure in parts]
