"""What is worth collecting of one node: the quick and the small first, since logs may lie where reading hangs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from yrnode.collect.gather import Missing, Source, command, tail
from yrnode.components.environment import find_program
from yrnode.components.node import client_logs, output_files, own_logs
from yrnode.config.cluster import Cluster
from yrnode.model.spec import ComponentSpec
from yrnode.process import atomic, record, table
from yrnode.store.connect import connect
from yrnode.store.errors import StoreError
from yrnode.store.keys import ClusterKeys
from yrnode.telemetry import event_file

CHECK_S, ASK_S, STORE_S = 60.0, 10.0, 5.0
"""How long a whole check may take, another program, the store."""
MOST_OWN_LOGS = 12
"""Files of a component's own log folder, the newest."""
JOURNAL_LINES = 20_000
MOST_EVENTS = 32 * 1024**2

_PROC = ("version", "meminfo", "loadavg", "cmdline", "mounts", "cpuinfo", "vmstat", "self/limits", "self/cgroup")
_PROC_MORE = ("pressure/cpu", "pressure/io", "pressure/memory", "sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class Subject:
    """One node. `check`: the command line of `yrnode check`. Without `cluster` its file is faulty, and without
    `specs` nobody can say what it runs."""

    file: Path
    state_dir: Path
    run_dir: Path
    log_dir: Path
    check: Sequence[str]
    cluster: Cluster | None = None
    specs: Sequence[ComponentSpec] = ()


def sources(s: Subject, most: int) -> list[Source]:
    """`most`: bytes of each log."""
    return [*_host(s), *_programs(s), *_kept(s), *_logs(s, most)]


def _host(s: Subject) -> Iterator[Source]:
    for name in (*_PROC, *_PROC_MORE):
        yield Source(f"host/{name.replace('/', '-')}", Path("/proc", name).read_bytes)
    yield Source("host/os-release", Path("/etc/os-release").read_bytes)
    yield Source("host/uname", lambda: _lines(f"{k}: {v}" for k, v in zip(_UNAME, os.uname(), strict=True)))
    yield Source("host/disks", lambda: _disks(s))
    yield Source("host/shm", lambda: _folder(Path("/dev/shm")))  # noqa: S108  a listing, nothing is written
    yield Source("host/processes", lambda: _processes(s.state_dir))
    yield Source("host/limits", lambda: _limits(s.run_dir))
    yield Source("host/npu-smi", partial(command, ["npu-smi", "info"], ASK_S))


def _programs(s: Subject) -> Iterator[Source]:
    yield Source("versions/python", f"{sys.version}\n{sys.executable}\n".encode)
    yield Source("versions/packages", _packages)
    if s.cluster is not None:
        for name, argv in (("etcd", s.cluster.bin.etcd), ("dscli", s.cluster.bin.dscli)):
            words = find_program(argv, os.environ)
            yield Source(f"versions/{name}", partial(command, [*words, "--version"], ASK_S))


def _kept(s: Subject) -> Iterator[Source]:
    yield Source("check.json", partial(command, s.check, CHECK_S, (0, 1, 2)))
    journal = ["journalctl", "-u", "yrnode", "-n", str(JOURNAL_LINES), "--no-pager", "-o", "short-iso-precise"]
    yield Source("journal.log", partial(command, journal, ASK_S))
    yield Source("store.jsonl", lambda: _store(s.cluster))
    events = s.state_dir / event_file.NAME
    yield Source("events.jsonl", partial(tail, [event_file.predecessor(events), events], MOST_EVENTS))
    yield Source("cluster.yaml", partial(tail, [s.file], 1024**2))
    for folder, where in ((s.state_dir, "state"), (s.state_dir / "groups", "state/groups"), (s.run_dir, "run")):
        for path in _files(folder):
            if path.suffix == ".json" or ".unreadable-" in path.name:
                yield Source(f"{where}/{path.name}", partial(tail, [path], 1024**2))


def _logs(s: Subject, most: int) -> Iterator[Source]:
    named = set[Path]()
    for spec in s.specs:
        parts = [p for p in output_files(spec) if p.name.startswith(spec.log.name)]
        named.update(parts)
        yield Source(f"log/{spec.log.name}", partial(tail, parts, most))
        for folder in own_logs(spec):
            for path in sorted(_files(folder), key=_age, reverse=True)[:MOST_OWN_LOGS]:
                yield Source(f"log/{spec.log.stem}/{path.name}", partial(tail, [path], most))
        for path in client_logs(spec):
            if path not in named:
                named.add(path)
                inside = path.relative_to(s.log_dir) if path.is_relative_to(s.log_dir) else path.name
                yield Source(f"log/{inside}", partial(tail, [path], most))
    if not s.specs:
        for path in _files(s.log_dir):
            if path.name.startswith(("etcd.log", "worker.log", "router.log", "rank-")):
                yield Source(f"log/{path.name}", partial(tail, [path], most))


_UNAME = ("system", "host", "release", "version", "machine")


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_file() and not p.is_symlink())
    except OSError:
        return []


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _disks(s: Subject) -> bytes:
    lines = []
    for path in (s.state_dir, s.run_dir, s.log_dir, Path("/dev/shm"), Path("/tmp"), Path("/")):  # noqa: S108
        try:
            use = shutil.disk_usage(path)
            room = os.statvfs(path)
            lines.append(f"{path}: {use.total} bytes, {use.free} free; {room.f_files} inodes, {room.f_favail} free")
        except OSError as e:
            lines.append(f"{path}: {e.strerror}")
    return _lines(lines)


def _folder(folder: Path) -> bytes:
    lines = []
    for path in sorted(folder.iterdir())[:5000]:
        try:
            info = path.lstat()
            lines.append(f"{info.st_mode:o} uid {info.st_uid} {info.st_blocks * 512} bytes {path.name}")
        except OSError as e:
            lines.append(f"{path.name}: {e.strerror}")
    return _lines(lines)


def _processes(home: Path) -> bytes:
    lines = []
    for proc in table.scan():
        mark, where = table.marks(proc.pid)
        if where == str(home):
            lines.append(f"{proc} {mark} {table.command(proc.pid)}")
    if not lines:
        raise Missing("no process carries this node's mark")
    return _lines(lines)


def _limits(run_dir: Path) -> bytes:
    """Of the components' own processes: a shell's limits are not theirs."""
    lines = []
    for path in _files(run_dir):
        if path.suffix != ".json":
            continue
        try:
            kept = record.load(path)
            # a later process may have its pid
            if kept is not None and kept.main is not None and kept.main.find() is not None:
                text = Path(f"/proc/{kept.main.pid}/limits").read_text()
                lines += [f"# {path.stem}, pid {kept.main.pid}", text]
        except (OSError, atomic.Unreadable):
            continue
    if not lines:
        raise Missing("no component's process is there")
    return _lines(lines)


def _packages() -> bytes:
    return _lines(sorted({f"{d.metadata['Name']} {d.version}" for d in metadata.distributions()}))


def _store(cluster: Cluster | None) -> bytes:
    if cluster is None:
        raise Missing("the cluster file is faulty, so nobody knows where the store is")

    async def read() -> bytes:
        store = connect(cluster, timeout_s=STORE_S)
        try:
            listing = await store.list(ClusterKeys(cluster.cluster).root)
        except StoreError as e:
            raise Missing(f"the store does not tell: {e}") from None
        finally:
            await store.close()
        return _lines(
            json.dumps({"key": kv.key, "revision": kv.mod_revision, "value": _value(kv.value)})
            for kv in listing.items
        )

    return asyncio.run(read())


def _value(raw: bytes) -> object:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")
