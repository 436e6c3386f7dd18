"""What memory is free on this host, and what clients of dead workers still hold of it.

A worker's shared memory is a memfd: it lives until its last client unmaps it, however long the worker is dead, and
/dev/shm has no part in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from yrnode.model.memory import Held, Memory, MemoryNeed
from yrnode.process import table
from yrnode.process.instance import members_of
from yrnode.process.launch import Owner
from yrnode.residue import inventory

MEMFD = b"/memfd:datasystem"
"""How the kernel names a worker's shared memory in its clients' maps."""
WORKER = "datasystem_work"
"""A worker's own name, as the kernel cuts it."""
_KIB = 1024
_RECLAIMABLE = {"inactive_file", "active_file", "slab_reclaimable", "total_inactive_file", "total_active_file"}
_V1, _V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")


def free(huge: bool, root: Path = Path("/")) -> Memory | None:
    """What a new process could take: from huge pages, or of the host and of every control group that it will be in.

    None where the kernel does not tell. `root`: where /proc and the control groups are found.
    """
    info = _numbers(root / "proc/meminfo")
    if "MemAvailable" not in info:
        return None
    if huge:
        size = info.get("Hugepagesize", 0) * _KIB
        # what a mapping has reserved is still counted as free
        spare = max(0, _number(root / "proc/sys/vm/nr_overcommit_hugepages") - info.get("HugePages_Surp", 0))
        pages = info.get("HugePages_Free", 0) - info.get("HugePages_Rsvd", 0)
        return Memory((pages + spare) * size, (info.get("HugePages_Total", 0) + spare) * size, "huge pages")
    found = Memory(info["MemAvailable"] * _KIB, info.get("MemTotal", 0) * _KIB, "MemAvailable")
    for group in _control_groups(root):
        total = min(found.total, group.limit)
        left = group.limit - group.used
        found = replace(found, total=total)
        if left < found.free:
            found = replace(found, free=left, where=f"memory limit of the control group {group.name}")
    return found


@dataclass(frozen=True)
class _Group:
    name: str
    limit: int
    used: int


def _control_groups(root: Path) -> Iterator[_Group]:
    """Those of this process that limit memory, from its own up to the topmost that can be seen."""
    paths = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            paths["cgroup2" if controllers == "" else "cgroup"] = path
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind not in paths or (kind == "cgroup" and "memory" not in options.split(" ")[-1].split(",")):
            continue
        top, mount = left.split(" ")[3:5]
        # in a container the path may be the host's, of which only the part below the mount can be seen
        inside = os.path.relpath(paths[kind], top) if Path(paths[kind]).is_relative_to(top) else "."
        folder = Path(os.path.normpath(root / mount.lstrip("/") / inside))
        last = root / mount.lstrip("/")
        while True:
            yield from _limit(folder, *(_V2 if kind == "cgroup2" else _V1))
            if folder == last or not folder.is_relative_to(last):
                break
            folder = folder.parent


def _limit(folder: Path, limit: str, used: str) -> Iterator[_Group]:
    try:
        most = int((folder / limit).read_text())
        taken = int((folder / used).read_text())
    except (OSError, ValueError):
        # the topmost group has none, and "max" is none
        return
    cached = sum(n for key, n in _numbers(folder / "memory.stat").items() if key in _RECLAIMABLE)
    yield _Group(str(folder), most, max(0, taken - cached))


def held(need: MemoryNeed, owner: Owner) -> tuple[Held, ...]:
    """Memory of dead workers that living processes map: that of a worker which lives itself is left out."""
    sizes: dict[tuple[bytes, bytes], int] = {}
    pids: dict[tuple[bytes, bytes], set[int]] = {}
    alive: set[tuple[bytes, bytes]] = set()
    comms: dict[int, str] = {}
    for proc in table.scan():
        comms[proc.pid] = proc.comm
        for key, size in _mapped(proc.pid, need):
            sizes[key] = max(sizes.get(key, 0), size)
            pids.setdefault(key, set()).add(proc.pid)
            if proc.comm == WORKER:
                alive.add(key)
    if not sizes.keys() - alive:
        return ()
    names = _components(owner)
    found: dict[frozenset[str], int] = {}
    for key in sizes.keys() - alive:
        holders = frozenset(names.get(pid) or f"pid {pid} ({comms[pid]})" for pid in pids[key])
        found[holders] = found.get(holders, 0) + sizes[key]
    return tuple(Held(size, holders) for holders, size in found.items())


def _mapped(pid: int, need: MemoryNeed) -> Iterator[tuple[tuple[bytes, bytes], int]]:
    """Each piece of a worker's memory that the process maps, by device and inode, with what it takes."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as f:
            lines = [line.split(maxsplit=5) for line in f if MEMFD in line]
    except OSError:
        return
    for span, _, _, device, inode, *name in lines:
        if name and name[0].startswith(MEMFD):
            yield (device, inode), _taken(pid, os.fsdecode(span), need)


def _taken(pid: int, span: str, need: MemoryNeed) -> int:
    first, _, last = span.partition("-")
    length = min(int(last, 16) - int(first, 16), need.size)
    if need.huge:
        # huge pages are reserved for the whole of it
        return length
    try:
        # what it takes as a whole: a client has touched but a part of what it keeps alive
        return os.stat(f"/proc/{pid}/map_files/{span}").st_blocks * 512
    except OSError:
        # that needs root; it cannot be more than this
        return length


def _components(owner: Owner) -> dict[int, str]:
    """This node's component of each of its living processes, by pid."""
    found = {}
    for name, kept in inventory.records(inventory.Scope(owner, (), runs=True)).items():
        for proc in members_of(kept, owner.home / name.replace("/", "-"), None):
            found[proc.pid] = name
    return found


def _numbers(path: Path) -> dict[str, int]:
    """Lines such as `MemFree: 12 kB` and `active_file 12`."""
    words = [line.replace(":", " ").split() for line in _lines(path)]
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}


def _number(path: Path) -> int:
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
