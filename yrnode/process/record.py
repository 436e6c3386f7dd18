"""What run_dir remembers of an instance, so that a later yrnode can prove that it is ours.

Instance and generation are written before the program is started: a daemon that dies in between leaves an orphan
whose mark is known. Monotonic times count from boot, so they hold across daemons; the boot id says whether they do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from yrnode.process import atomic, table


@dataclass(frozen=True)
class Ident:
    """A process beyond doubt on one boot: its pid, and when it started, in clock ticks since boot."""

    pid: int
    start_ticks: int

    @staticmethod
    def of(proc: table.Proc) -> Ident:
        return Ident(proc.pid, proc.start_ticks)

    def find(self) -> table.Proc | None:
        """This very process, a zombie included; None when it is gone or its pid is another's."""
        proc = table.read(self.pid)
        return proc if proc is not None and proc.start_ticks == self.start_ticks else None


@dataclass(frozen=True)
class Record:
    """`began`: the start, in clock ticks since boot, before which no member can have started.
    `ready_at`: monotonic seconds, None before it was ready. `shm_before`: what was in /dev/shm before the start.
    `life`: the n of the group that it lives with. `shm`: what its members were seen to map in /dev/shm. `sessions`:
    leaders of the sessions that its members made for themselves."""

    component: str
    instance: str
    generation: int
    mark: str
    home: str
    boot: str
    began: int
    launched: Ident | None = None
    main: Ident | None = None
    ready_at: float | None = None
    shm_before: tuple[str, ...] = ()
    life: int = 0
    shm: tuple[str, ...] = ()
    sessions: tuple[Ident, ...] = ()

    def save(self, path: Path) -> None:
        """OSError when it cannot be written."""
        atomic.write(path, asdict(self))


def path_of(run_dir: Path, component: str) -> Path:
    return run_dir / f"{component.replace('/', '-')}.json"


def load(path: Path) -> Record | None:
    """None where there is no record. atomic.Unreadable for a damaged one; fields of a later version are left out."""
    data = atomic.read(path)
    if data is None:
        return None
    try:
        return Record(
            component=_text(data["component"]),
            instance=_text(data["instance"]),
            generation=_whole(data["generation"]),
            mark=_text(data["mark"]),
            home=_text(data["home"]),
            boot=_text(data["boot"]),
            began=_whole(data["began"]),
            launched=_ident(data.get("launched")),
            main=_ident(data.get("main")),
            ready_at=None if data.get("ready_at") is None else float(data["ready_at"]),
            shm_before=tuple(_text(x) for x in data.get("shm_before", ())),
            life=_whole(data.get("life", 0)),
            shm=tuple(_text(x) for x in data.get("shm", ())),
            sessions=tuple(i for x in data.get("sessions", ()) if (i := _ident(x)) is not None),
        )
    except (KeyError, TypeError, ValueError) as e:
        raise atomic.Unreadable(f"{path}: wrong content ({e!r})") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _ident(value: Any) -> Ident | None:
    return None if value is None else Ident(_whole(value["pid"]), _whole(value["start_ticks"]))
