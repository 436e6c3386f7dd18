"""What the worker keeps on disk is where it can: sockets on a local file system, its liveness file beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from yrnode.preflight.finding import Finding, Look, good, not_here, refusal, warning

KINDS, LIVENESS = "file system", "liveness file"
LIVENESS_FLAG = "liveness_check_path"
REMOTE = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "glusterfs", "fuse", "virtiofs", "gpfs", "vfat", "exfat")
"""File systems, or how their names begin, that refuse a socket or its mode, or that another machine serves."""
REFUSED = ("/bin", "/sbin", "/lib", "/lib64", "/boot", "/dev", "/etc", "/sys", "/proc")
"""Where dscli takes no path."""


def look(at: Look) -> list[Finding]:
    places = at.host.places
    wanted = {"state_dir": places.state_dir, "run_dir": places.run_dir, "etcd.data_dir": places.etcd_data_dir}
    kinds = mounts(at.read("/proc/self/mountinfo"))
    found = judge({key: (path, kind_of(path, kinds)) for key, path in wanted.items()})
    own = at.host.cluster.datasystem.args.get(LIVENESS_FLAG)
    return [found, *([] if own is None else [judge_liveness(Path(str(own)))])]


def mounts(mountinfo: str) -> dict[str, str]:
    """Kind of file system by mount point; the last mount on a place is the one that is seen."""
    found = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right:
            found[left.split()[4].replace("\\040", " ")] = right.split()[0]
    return found


def kind_of(path: Path, kinds: Mapping[str, str]) -> str:
    """The file system of a path that need not exist yet; empty where it is unknown."""
    real = Path(os.path.realpath(path))
    return next((kinds[str(p)] for p in (real, *real.parents) if str(p) in kinds), "")


def judge(where: Mapping[str, tuple[Path, str]]) -> Finding:
    """`where`: path and file system, by the cluster file's key."""
    if not any(kind for _, kind in where.values()):
        return not_here(KINDS, "the kernel does not tell")
    remote = [f"{key} {path} is on {kind}" for key, (path, kind) in where.items() if kind.startswith(REMOTE)]
    if remote:
        return warning(KINDS, ", ".join(remote), "a local disk, for sockets and etcd", "use a path on a local disk")
    return good(KINDS, ", ".join(f"{key} on {kind or 'an unknown one'}" for key, (_, kind) in where.items()))


def judge_liveness(path: Path) -> Finding:
    """A path that `datasystem.args` names; the derived one lies in state_dir."""
    key = f"datasystem.args.{LIVENESS_FLAG}"
    if str(path).startswith(tuple(f"{place}/" for place in REFUSED)):
        return refusal(LIVENESS, f"{path} is below a directory that dscli refuses", "another path", f"correct {key}")
    here = path.parent
    while not here.exists() and here != here.parent:
        here = here.parent
    if not (here.is_dir() and os.access(here, os.W_OK | os.X_OK)):
        return refusal(LIVENESS, f"{path} cannot be written", "a directory that may be written", f"correct {key}")
    # a worker that cannot write it gives up its lease
    if not os.statvfs(here).f_bavail:
        return refusal(LIVENESS, f"the disk of {path} is full", "room", f"make room, or correct {key}")
    # the check reads where yrnode has put it
    cure = f"remove {key}: yrnode then puts it into state_dir and reads it there"
    return warning(LIVENESS, f"{path}, where yrnode does not look for it", "the place that yrnode chooses", cure)
