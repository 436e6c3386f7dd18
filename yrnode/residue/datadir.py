"""Whose an etcd data directory is. etcd starts on any: it takes the cluster from the data, not from its flags."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

from yrnode.model.member import Data

OWNER = "yrnode.json"
_MEMBER = "member"
_DB = "member/snap/db"


def why_foreign(data_dir: Path, cluster: str, node: str) -> str:
    """Empty when the directory is new or ours; else what is wrong with it, and the cure."""
    try:
        if not (data_dir / _MEMBER).exists():
            return ""
    except OSError as e:
        return f"etcd data in {data_dir} cannot be read: {e.strerror}; run as its owner or change its owner"
    cure = "move it away, or set etcd.data_dir to another directory"
    try:
        owner = json.loads((data_dir / OWNER).read_text())
        whose = f"{owner['cluster']}/{owner['node']}"
    except FileNotFoundError:
        return f"etcd data in {data_dir} was not made by yrnode; {cure}"
    except (OSError, ValueError, KeyError, TypeError) as e:
        mine = json.dumps({"cluster": cluster, "node": node})
        what = f"etcd data in {data_dir}: {OWNER} is unreadable ({e})"
        return f"{what}; if the data is this node's, write {mine} into it, else {cure}"
    if whose != f"{cluster}/{node}":
        return f"etcd data in {data_dir} belongs to {whose}, not to {cluster}/{node}; {cure}"
    return ""


def why_removed(log: Path) -> str:
    """Empty unless etcd's last words say that the cluster has removed this member for good."""
    try:
        with open(log, "rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - 16384))
            end = f.read().decode("utf-8", "replace").rpartition("--- yrnode: ")[2]
    except OSError:
        return ""
    if "the member has been permanently removed from the cluster" in end:
        return "this member was removed from its cluster: etcd will not start on this data again"
    return ""


def why_locked(data_dir: Path) -> str:
    """Empty unless another etcd holds the data directory now."""
    try:
        with open(data_dir / _DB, "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"etcd data in {data_dir} is locked by another etcd; end that one first"
    except OSError:
        return ""
    return ""


def why_unwritable(data_dir: Path) -> str:
    """Empty unless etcd's files are there and may not be written: etcd's own words about that are of little help."""
    member = data_dir / _MEMBER
    try:
        if not member.exists():
            return ""
        for path in (data_dir, member, member / "snap", member / "wal", data_dir / _DB):
            mode = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
            if path.exists() and not os.access(path, mode, effective_ids=True):
                if os.statvfs(path).f_flag & os.ST_RDONLY:
                    return f"etcd data in {data_dir} is on a read-only file system: look at the disk, remount it"
                return f"no permission to write etcd data in {path}; run as its owner or change its owner"
    except OSError as e:
        return f"etcd data in {data_dir} cannot be read: {e.strerror}; run as its owner or change its owner"
    return ""


def state(data_dir: Path) -> Data:
    """What there is of a member. OSError where it cannot be read."""
    if not (data_dir / _MEMBER).exists():
        return Data.NONE
    wal = data_dir / _MEMBER / "wal"
    return Data.WHOLE if wal.exists() and any(p.suffix == ".wal" for p in wal.iterdir()) else Data.PARTS


def move_aside(data_dir: Path) -> None:
    """The member's files stay in the directory, which may be a file system of its own, under another name."""
    for i in range(1, 1000):
        aside = data_dir / f"{_MEMBER}.aside-{i}"
        if not os.path.lexists(aside):
            os.rename(data_dir / _MEMBER, aside)
            return
    raise FileExistsError(errno.EEXIST, "remove what was moved aside", str(aside))


def claim(data_dir: Path, cluster: str, node: str) -> None:
    """Write whose it is, before etcd's first start in it. Where etcd has data, it says so already."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (data_dir / _MEMBER).exists():
        return
    with open(data_dir / OWNER, "w") as f:
        f.write(json.dumps({"cluster": cluster, "node": node}) + "\n")
        f.flush()
        # a power cut must not leave etcd's data without it
        os.fsync(f.fileno())
