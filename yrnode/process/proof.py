"""Which of the processes that carry an instance's mark are the instance's own.

A mark is inherited by whatever is started with that environment: an operator's shell that took a rank's, to debug it,
carries the mark and must live. The first of these that applies decides:

1. its session is one that the instance's record names, or it is a child of an own process or of the daemon itself, to
   which orphans come back: own;
2. it has a terminal: inherited; an instance starts without one, and nothing below it opens one;
3. its session's leader shows an environment without the mark: inherited;
4. it, or its session's leader, works in the component's own directory or writes to its log: own;
5. else doubtful: it is not signalled, and nothing is started over it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from yrnode.process import table


@dataclass
class Carriers:
    """Processes with one mark, by whose they are."""

    own: list[table.Proc] = field(default_factory=list)
    doubtful: list[table.Proc] = field(default_factory=list)
    inherited: list[table.Proc] = field(default_factory=list)


def sort(marked: Iterable[table.Proc], proven: Iterable[table.Proc], directory: Path, log: Path | None) -> Carriers:
    """`marked` carry the mark; `proven` are own beyond doubt. `directory` and `log` are the component's."""
    found = Carriers()
    # a container's first process is everybody's parent
    parents = {os.getpid()} - {1} | {p.pid for p in proven}
    sessions = {p.sid for p in proven}
    # a parent before its children
    for proc in sorted(marked, key=lambda p: p.start_ticks):
        whose = _whose(proc, parents, sessions, directory, log)
        whose_list: list[table.Proc] = getattr(found, whose)
        whose_list.append(proc)
        if whose == "own":
            parents.add(proc.pid)
            if proc.pid == proc.sid:
                sessions.add(proc.sid)
    return found


def _whose(
    proc: table.Proc, parents: Collection[int], sessions: Collection[int], directory: Path, log: Path | None
) -> str:
    if proc.sid in sessions or proc.ppid in parents:
        return "own"
    if _has_terminal(proc.pid):
        return "inherited"
    at_home = _at_home(proc.pid, directory, log)
    leader = table.read(proc.sid) if proc.sid != proc.pid else None
    if leader is None or leader.state in "ZX":
        return "own" if at_home else "doubtful"
    if table.marks(leader.pid) != table.marks(proc.pid) and _shows_environment(leader.pid):
        return "inherited"
    return "own" if at_home or _at_home(leader.pid, directory, log) else "doubtful"


def _has_terminal(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[4] != b"0"
    except OSError:
        return False


def _at_home(pid: int, directory: Path, log: Path | None) -> bool:
    return _same(f"/proc/{pid}/cwd", directory) or (log is not None and _same(f"/proc/{pid}/fd/1", log))


def _same(link: str, path: Path) -> bool:
    try:
        return os.path.samefile(link, path)
    except OSError:
        return False


def _shows_environment(pid: int) -> bool:
    """Process titles erase it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return bool(f.read().strip(b"\0"))
    except OSError:
        return False
