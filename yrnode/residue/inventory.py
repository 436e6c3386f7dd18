"""Everything that is left over on this node, judged. Nothing is changed by looking."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from yrnode.model.spec import ComponentSpec
from yrnode.process import atomic, record, table
from yrnode.process.instance import SHM_NAMES, all_shm, mapped_shm, members_of
from yrnode.process.launch import Owner
from yrnode.process.proof import Carriers
from yrnode.process.record import Record
from yrnode.residue import datadir, holders, orphans, ports, shm
from yrnode.residue.item import Item, Standing

PROCESSES, PORT, MEMORY, FILES, DATA, LOGS = "processes", "port", "shared memory", "files", "etcd data", "logs"


@dataclass(frozen=True)
class Scope:
    """Whose leftovers are looked for. `specs`: this node's components; `runs`: whether its daemon does."""

    owner: Owner
    specs: tuple[ComponentSpec, ...]
    runs: bool

    @property
    def names(self) -> set[str]:
        return {s.name for s in self.specs}


@dataclass(frozen=True)
class _Lives:
    """Each recorded instance's living processes, by component."""

    records: Mapping[str, Record]
    members: Mapping[str, list[table.Proc]]

    def __contains__(self, component: str) -> bool:
        return bool(self.members.get(component))

    def owner_of(self, pid: int) -> str:
        return next((name for name, procs in self.members.items() if any(p.pid == pid for p in procs)), "")


def find(scope: Scope) -> list[Item]:
    # processes first: whoever is in this list has had its record written before
    marked = orphans.carriers(f"{scope.owner.name}/", scope.owner.home)
    lives = _lives(scope)
    return [
        *_processes(scope, marked, lives),
        *_ports(scope, marked, lives),
        *_memory(scope, lives),
        *_files(scope, lives),
        *_data(scope),
        *_others_logs(),
    ]


def records(scope: Scope) -> dict[str, Record]:
    """What run_dir remembers, by component; what cannot be read is left out."""
    kept: dict[str, Record] = {}
    for path in _entries(scope.owner.run_dir):
        if path.suffix == ".json":
            try:
                found = record.load(path)
            except atomic.Unreadable:
                continue
            if found is not None and found.home == str(scope.owner.home):
                kept[found.component] = found
    return kept


def runs(owner: Owner) -> bool:
    """Whether anything of this node lives: known by its mark, or where its environment is erased by its record."""
    return bool(orphans.find(f"{owner.name}/", owner.home) or recorded(Scope(owner, (), False)))


def recorded(scope: Scope) -> list[table.Proc]:
    """The living processes of the instances that run_dir remembers."""
    return [p for procs in _lives(scope).members.values() for p in procs]


def _lives(scope: Scope) -> _Lives:
    kept = records(scope)
    logs = {s.name: s.log for s in scope.specs}
    home = scope.owner.home
    members = {n: members_of(r, home / n.replace("/", "-"), logs.get(n)) for n, r in kept.items()}
    return _Lives(kept, members)


def _processes(scope: Scope, marked: Mapping[str, Carriers], lives: _Lives) -> Iterator[Item]:
    recorded = {r.mark: r.component for r in lives.records.values()}
    for mark, component in recorded.items():
        procs = lives.members[component]
        if procs:
            listed = component in scope.names
            reason = "the present instance" if listed else "the cluster file does not have this component"
            standing = Standing.IN_USE if listed else Standing.REMOVABLE
            yield _processes_item(procs, mark, standing, reason)
    for mark, found in marked.items():
        if found.own and mark not in recorded:
            listed = orphans.component_of(mark) in scope.names
            reason = "no record of a living instance" if listed else "the cluster file does not have this component"
            yield _processes_item(found.own, mark, Standing.REMOVABLE, reason)
        if found.doubtful:
            reason = "carries the mark, but nothing proves that the instance started it: end it by hand"
            yield _processes_item(found.doubtful, mark, Standing.UNKNOWN, reason)
        if found.inherited:
            reason = "has only inherited the mark: it was started from a component's environment by somebody else"
            yield _processes_item(found.inherited, mark, Standing.NOT_OURS, reason)


def _processes_item(procs: list[table.Proc], mark: str, standing: Standing, reason: str) -> Item:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Item(
        PROCESSES,
        ", ".join(f"{p.pid} ({p.comm})" for p in procs),
        f"{orphans.component_of(mark)} instance {mark.rpartition('/')[2]}",
        standing,
        reason,
        age_s=now - min(p.start_ticks for p in procs) / table.TICKS_PER_S,
        size=sum(_resident(p.pid) for p in procs),
        mark=mark,
    )


def _resident(pid: int) -> int:
    """Bytes of memory; 0 where it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _ports(scope: Scope, marked: Mapping[str, Carriers], lives: _Lives) -> Iterator[Item]:
    leftover = {p.pid for c in marked.values() for p in c.own}
    for spec in scope.specs:
        for need in spec.ports:
            taken = ports.why_taken(need.host, need.port)
            pid = ports.listener(need.host, need.port) if taken else None
            # what is ours is judged with its process
            if taken and not (pid and (lives.owner_of(pid) or pid in leftover)):
                what = f"{need.host}:{need.port} ({need.purpose})"
                reason = f"{spec.name} cannot start: end its holder or change {need.purpose}"
                yield Item(PORT, what, taken.removeprefix("in use by "), Standing.NOT_OURS, reason, in_the_way=True)


def _memory(scope: Scope, lives: _Lives) -> Iterator[Item]:
    users, hidden = _users_of_memory()
    noted = {name: r.component for r in lives.records.values() for name in r.shm}
    left = shm.left(scope.owner.run_dir)
    groups: dict[tuple[str, Standing, str, int], list[str]] = {}
    for name in all_shm():
        if not name.startswith(SHM_NAMES):
            continue
        owner, standing, reason = "", Standing.UNKNOWN, "not seen while an instance of ours lived"
        component, began = noted.get(name, ""), 0
        if name in users:
            pid = users[name]
            owner = lives.owner_of(pid) or f"pid {pid} ({table.command(pid) or 'unknown command'})"
            standing, reason = Standing.IN_USE, "mapped"
        elif component in lives:
            owner, standing, reason = component, Standing.IN_USE, "of a living instance"
        elif not _mine(name):
            standing, reason = Standing.NOT_OURS, "of another user"
        elif component or name in left:
            owner = component or "a dead instance"
            standing, reason = Standing.REMOVABLE, "of a dead instance, and nobody maps it"
            began = lives.records[component].began if component else left[name]
            if hidden >= began:
                standing, reason = Standing.UNKNOWN, "some processes do not let us see whether they map it"
        groups.setdefault((owner, standing, reason, began), []).append(name)
    for (owner, standing, reason, began), names in groups.items():
        yield replace(_files_item(MEMORY, names, owner, standing, reason), began=began)


def _users_of_memory() -> tuple[dict[str, int], int]:
    """Who maps what in /dev/shm, and when the youngest started of those whom we cannot see, in ticks since boot."""
    users: dict[str, int] = {}
    hidden = 0
    for proc in table.scan():
        try:
            users |= dict.fromkeys(mapped_shm(proc.pid), proc.pid)
        except PermissionError:
            hidden = max(hidden, proc.start_ticks)
    return users, hidden


def _mine(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _files(scope: Scope, lives: _Lives) -> Iterator[Item]:
    for spec in scope.specs:
        there = [p for p in spec.stale if os.path.lexists(p) and (not p.is_dir() or any(_entries(p)))]
        if not there:
            continue
        holder = next(filter(None, map(holders.of, there)), "")
        standing, reason = Standing.REMOVABLE, "of a dead instance, and nobody uses it"
        if spec.name in lives:
            standing, reason = Standing.IN_USE, "of the present instance"
        elif scope.runs:
            standing, reason = Standing.IN_USE, "yrnode runs, and removes it before the next start"
        elif holder:
            standing, reason = Standing.IN_USE, holder
        yield _files_item(FILES, map(str, there), spec.name, standing, reason)
    yield from _unlisted_files(scope, lives)
    aside = [str(p) for d in _own_folders(scope) for p in _entries(d) if ".unreadable-" in p.name]
    if aside:
        yield _files_item(FILES, aside, "yrnode", Standing.REMOVABLE, "unreadable, and set aside for people")


def _own_folders(scope: Scope) -> tuple[Path, ...]:
    return scope.owner.run_dir, scope.owner.home, scope.owner.home / "groups"


def _unlisted_files(scope: Scope, lives: _Lives) -> Iterator[Item]:
    """Records and run directories of components that the cluster file does not have."""
    for component, kept in lives.records.items():
        if component in scope.names or component in lives or not kept.mark.startswith(f"{scope.owner.name}/"):
            continue
        path = record.path_of(scope.owner.run_dir, component)
        folder = path.with_suffix("")
        holder = holders.of(folder)
        standing = Standing.IN_USE if holder else Standing.REMOVABLE
        names = [str(p) for p in (path, folder) if p.exists()]
        yield _files_item(
            FILES, names, component, standing, holder or "the cluster file does not have this component"
        )


def _data(scope: Scope) -> Iterator[Item]:
    cluster, _, node = scope.owner.name.partition("/")
    for spec in scope.specs:
        directory = spec.data_dir
        if directory is None:
            continue
        why = datadir.why_foreign(directory, cluster, node) or datadir.why_removed(spec.log)
        if why:
            held = datadir.why_locked(directory)
            standing = Standing.IN_USE if held else Standing.NOT_OURS
            yield _files_item(DATA, [str(directory)], spec.name, standing, held or why, in_the_way=True)


def _others_logs() -> Iterator[Item]:
    for name, whose in (
        (".datasystem/logs", "every client of the datasystem"),
        ("ascend/log", "every user of an NPU"),
    ):
        folder = Path.home() / name
        if folder.is_dir():
            reason = f"{whose} of this account writes there; yrnode never removes it"
            yield _files_item(LOGS, [str(folder)], "this account", Standing.NOT_OURS, reason)


def _files_item(
    kind: str, paths: Iterable[str], owner: str, standing: Standing, reason: str, *, in_the_way: bool = False
) -> Item:
    names = tuple(paths)
    ages, size = [], 0
    for path in _walk(names):
        try:
            info = os.lstat(path)
        except OSError:
            continue
        ages.append(info.st_mtime)
        size += min(info.st_size, info.st_blocks * 512)
    shown = (
        names[0]
        if len(names) == 1
        else f"{len(names)} in {os.path.dirname(names[0])}: "
        + ", ".join(os.path.basename(n) for n in names[:3])
        + (", …" if len(names) > 3 else "")
    )
    age = max(0.0, time.time() - max(ages)) if ages else None
    return Item(kind, shown, owner, standing, reason, age, size, names, in_the_way=in_the_way)


def _walk(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        yield path
        if not os.path.islink(path):
            for folder, _, names in os.walk(path):
                yield from (os.path.join(folder, name) for name in names)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
