"""The directories that yrnode writes to: they can be made, written, and have room."""

from __future__ import annotations

import os
from pathlib import Path

from yrnode.components import datasystem
from yrnode.components.host import Host
from yrnode.model.spec import ComponentSpec
from yrnode.process.launch import Owner
from yrnode.residue import inventory

LEAST_BYTES = 64 * 1024**2
LEAST_INODES = 256
LONGEST_SOCKET = 107
_SOCKET = "yrnode.sock"
_ENGINE_SOCKET = len("/00000000-0000-0000-0000-000000000000")


def runs(host: Host) -> bool:
    """Whether anything of this node runs, with a yrnode or without one."""
    owner = Owner(f"{host.cluster.cluster}/{host.node}", host.places.state_dir, host.places.run_dir)
    return inventory.runs(owner)


def problems(host: Host, specs: list[ComponentSpec]) -> list[str]:
    places = host.places
    wanted = {"state_dir": places.state_dir, "run_dir": places.run_dir, "log_dir": places.log_dir}
    for spec in specs:
        if spec.data_dir is not None:
            wanted["etcd.data_dir"] = spec.data_dir
    # a daemon must take over what runs, also on a full disk
    living = runs(host)
    found = [f"{name} {path}: {why}" for name, path in wanted.items() if (why := _unusable(path, living))]
    socket = os.fsencode(places.run_dir / _SOCKET)
    if len(socket) > LONGEST_SOCKET:
        found.append(f"run_dir {places.run_dir}: too long for a socket ({len(socket)} bytes); use a shorter path")
    for spec in specs:
        if spec.kind == "rank":
            longest = max(len(os.fsencode(d)) for d in spec.dirs) + _ENGINE_SOCKET
            if longest > LONGEST_SOCKET:
                found.append(
                    f"run_dir {places.run_dir}: too long: sockets of {spec.name} would have {longest} bytes, "
                    f"{LONGEST_SOCKET} are allowed; use a shorter path"
                )
        if spec.kind == "worker":
            directory = os.fsencode(datasystem.socket_dir(spec))
            if len(directory) > datasystem.LONGEST_SOCKET_DIR:
                found.append(
                    f"state_dir {places.state_dir}: too long: the worker's sockets would be in a path of "
                    f"{len(directory)} bytes, {datasystem.LONGEST_SOCKET_DIR} are allowed; use a shorter path"
                )
    return found


def _unusable(path: Path, full: bool) -> str:
    """Looks at the nearest directory that exists: nothing is made here. `full`: it may be."""
    try:
        here = path
        while not here.exists():
            here = here.parent
        if not here.is_dir():
            return f"{here} is a file; remove it or use another path"
        room = os.statvfs(here)
        # first: nobody may write there, and an owner would change nothing
        if room.f_flag & os.ST_RDONLY:
            return f"{here} is on a read-only file system; use another path"
        if not os.access(here, os.W_OK | os.X_OK):
            return f"no permission to write in {here}; run as its owner, change its owner, or use another path"
    except OSError as e:
        return f"{e.strerror}; use another path"
    if full:
        return ""
    if room.f_bavail * room.f_frsize < LEAST_BYTES:
        free = room.f_bavail * room.f_frsize / 1024**2
        return f"disk full: {free:.0f} MB free, {LEAST_BYTES / 1024**2:.0f} MB needed; make room or use another path"
    if room.f_files and room.f_favail < LEAST_INODES:
        return f"disk full: {room.f_favail} inodes free, {LEAST_INODES} needed; make room or use another path"
    return ""
