"""Who uses a folder of an ended instance: bound sockets and locked files in it, whoever made them."""

from __future__ import annotations

import os
from pathlib import Path

from yrnode.process import table

_DEEP = 10_000


def of(path: Path) -> str:
    """Empty when nobody is seen to use anything below it; else who, for people."""
    if not os.path.lexists(path):
        return ""
    for inode, name in _bound_sockets():
        if name == str(path) or name.startswith(f"{path}/"):
            return f"{_holder_of_socket(inode)} has the socket {name}"
    locks = _locks()
    if locks:
        for file in _files(path):
            try:
                info = os.lstat(file)
            except OSError:
                continue
            pid = locks.get((info.st_dev, info.st_ino))
            if pid is not None:
                return f"{_named(pid)} has locked {file}"
    return ""


def _bound_sockets() -> list[tuple[str, str]]:
    """(inode, path) of sockets that are bound or connected; those of dead processes are not among them."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as f:
            fields = [line.rstrip("\n").split(maxsplit=7) for line in f]
    except OSError:
        return []
    return [(x[6], x[7]) for x in fields if len(x) == 8 and x[7].startswith("/")]


def _holder_of_socket(inode: str) -> str:
    for proc in table.scan():
        try:
            links = [os.readlink(f.path) for f in os.scandir(f"/proc/{proc.pid}/fd")]
        except OSError:
            continue
        if f"socket:[{inode}]" in links:
            return _named(proc.pid)
    return "a process that cannot be seen from here"


def _locks() -> dict[tuple[int, int], int]:
    """(device, inode) → pid of whoever has locked a file, in one of the kernel's three ways."""
    found = {}
    try:
        with open("/proc/locks") as f:
            lines = f.read().splitlines()
    except OSError:
        return {}
    for line in lines:
        words = line.split()
        if "->" not in words and len(words) >= 6:
            major, minor, inode = words[5].split(":")
            found[(os.makedev(int(major, 16), int(minor, 16)), int(inode))] = int(words[4])
    return found


def _files(path: Path) -> list[str]:
    """The files below it, links not followed, at most some thousands."""
    if not path.is_dir() or path.is_symlink():
        return [str(path)]
    found: list[str] = []
    for folder, _, names in os.walk(path):
        found += [os.path.join(folder, name) for name in names]
        if len(found) > _DEEP:
            break
    return found


def _named(pid: int) -> str:
    if pid <= 0:
        return "a process that cannot be seen from here"
    return f"pid {pid} ({table.command(pid) or 'unknown command'})"
