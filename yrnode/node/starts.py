"""How long components and groups took to become ready here: kept over daemons in one small file, for people alone."""

from __future__ import annotations

import hashlib
import logging
import time
from pathlib import Path
from typing import Any

from yrnode.components.vllm import loading
from yrnode.model.group import Stage
from yrnode.model.snapshot import Snapshot
from yrnode.model.spec import ComponentSpec
from yrnode.model.starts import Starts
from yrnode.model.state import State
from yrnode.policy.usual import KEPT, usual
from yrnode.process import atomic
from yrnode.process.tail import instance_lines

log = logging.getLogger("yrnode.node")

NAME = "starts.json"
COMPONENTS, GROUPS = "components", "groups"

Kept = dict[str, dict[str, Any]]
"""By name: what was started, as a digest, and the seconds of its last starts."""


class History:
    """`path`: the file. A look reads and writes files, so it belongs into a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        self._kept: dict[str, Kept] | None = None
        self._noted: dict[tuple[str, str], object] = {}
        self._told = False

    def look(self, s: Snapshot) -> Starts:
        """Note every start that has come to its end, and say what is usual, and what those under way are at."""
        if self._kept is None:
            self._kept = _read(self._path)
        digests = {c.name: digest(c.spec) for c in s.components.values()}
        news = False
        for c in s.components.values():
            if c.instance and c.ready_seconds is not None:
                news |= self._note(COMPONENTS, c.name, digests[c.name], c.instance, c.ready_seconds)
        for g in s.groups.values():
            # of one that went before this daemon came, nobody knows when
            if g.record.stage is Stage.GO and g.ready_since is not None and g.learned_at > self._began:
                news |= self._note(GROUPS, g.name, g.digest, g.record.n, g.ready_since - g.learned_at)
        if news:
            self._save(s)
        return Starts(
            self._usual(COMPONENTS, digests),
            self._usual(GROUPS, {g.name: g.digest for g in s.groups.values()}),
            _doing(s),
        )

    def _note(self, part: str, name: str, what: str, life: object, seconds: float) -> bool:
        if self._kept is None or self._noted.get((part, name)) == life or seconds < 0:
            return False
        self._noted[part, name] = life
        entry = self._kept[part].get(name)
        # another command line is another start
        before = entry["seconds"] if entry is not None and entry["digest"] == what else []
        self._kept[part][name] = {"digest": what, "seconds": [*before, round(seconds, 3)][-KEPT:]}
        return True

    def _usual(self, part: str, digests: dict[str, str]) -> dict[str, float]:
        kept = (self._kept or {}).get(part, {})
        found = {n: usual(e["seconds"]) for n, e in kept.items() if digests.get(n) == e["digest"]}
        return {name: seconds for name, seconds in found.items() if seconds is not None}

    def _save(self, s: Snapshot) -> None:
        there = {COMPONENTS: s.components, GROUPS: s.groups}
        kept = {p: {n: e for n, e in entries.items() if n in there[p]} for p, entries in (self._kept or {}).items()}
        try:
            atomic.write(self._path, kept)
        except OSError as e:
            if not self._told:
                log.warning("how long starts take cannot be written to %s: %s", e.filename, e.strerror)
            self._told = True


def digest(spec: ComponentSpec) -> str:
    """Of the command line: what decides how long a start takes."""
    return hashlib.sha256("\0".join(spec.argv).encode()).hexdigest()[:12]


def _doing(s: Snapshot) -> dict[str, str]:
    starting = [c for c in s.components.values() if c.state is State.STARTING and c.spec.kind == "rank"]
    found = {c.name: loading(instance_lines(c.spec.log, c.instance)) for c in starting if c.instance}
    return {name: words for name, words in found.items() if words}


def _read(path: Path) -> dict[str, Kept]:
    """Empty where there is nothing to be read: it is only an estimate."""
    try:
        data = atomic.read(path) or {}
    except atomic.Unreadable:
        data = {}
    return {part: _entries(data.get(part)) for part in (COMPONENTS, GROUPS)}


def _entries(data: object) -> Kept:
    return {n: e for n, e in data.items() if _whole(e)} if isinstance(data, dict) else {}


def _whole(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("digest"), str):
        return False
    seconds = entry.get("seconds")
    return isinstance(seconds, list) and all(type(x) in (int, float) and 0 <= x < 1e7 for x in seconds)
