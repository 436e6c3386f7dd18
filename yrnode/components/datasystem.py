"""The datasystem worker of this node, started by dscli and stopped by us.

Never by `dscli stop`: it finds its process by a prefix of the command line, and may wait for hours.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from yrnode.components import environment, proxies
from yrnode.components.checks import tuned
from yrnode.components.host import Host
from yrnode.config.etcd import Tls
from yrnode.config.layout import etcd_endpoints, worker_address
from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import short
from yrnode.model.memory import MemoryNeed
from yrnode.model.spec import CheckSpec, ComponentSpec, PortNeed
from yrnode.model.state import Plane
from yrnode.process.exit import Exit

NAME = "worker"
GROUP = "cache"
"""All workers of the cluster: they share one ring in the store."""
LONGEST_SOCKET_DIR = 80
"""Bytes of --unix_domain_socket_dir that the worker takes."""
_CONFIGURATION = (
    "unknown command line flag",
    "illegal value",
    "is missing a value",
    "Missing required",
    "must be greater than",
    "Invalid address",
    "Start failed: [Errno 2]",
)
# its log would grow by 13 MB/s while etcd is away; MB a file, and how many
_LOG_BOUNDS = {"max_log_size": "100", "max_log_file_num": "5"}


def spec(host: Host) -> ComponentSpec:
    cluster, ds = host.cluster, host.cluster.datasystem
    argv = environment.find_program(cluster.bin.dscli, host.caller)
    directory, address = host.dir(NAME), worker_address(cluster, host.node)
    liveness = directory / "liveness"
    flags = {
        "worker_address": address,
        "etcd_address": ",".join(e.split("://", 1)[1] for e in etcd_endpoints(cluster)),
        "shared_memory_size_mb": str(ds.shared_memory // 1024**2),
        "node_timeout_s": f"{ds.node_timeout:.0f}",
        "node_dead_timeout_s": f"{ds.node_dead_timeout:.0f}",
        "liveness_check_path": str(liveness),
        **_LOG_BOUNDS,
        **_tls(cluster.etcd.tls),
    }
    if ds.huge_pages:
        # the guides' number of arenas for the shortest start
        flags |= {"enable_huge_tlb": "true", "arena_per_tenant": "1"}
    if ds.remote_h2d:
        flags["remote_h2d_device_ids"] = ",".join(map(str, ds.remote_h2d))
    if ds.cluster_name:
        flags["cluster_name"] = ds.cluster_name
    flags |= ds.args
    launcher = ["-t", f"{ds.start_timeout:.0f}", "-d", str(directory), *_numa(host)]
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    env = environment.with_program(proxies.direct(cluster, environment.base(host.caller)), argv)
    where = {"address": address, "cluster_name": ds.cluster_name}
    probe = {
        "python": sdk_python(argv),
        "host": host.address,
        "port": ds.port,
        "keys": 4,
        "env": {**env, "DATASYSTEM_CLIENT_LOG_DIR": str(host.places.log_dir / "datasystem-probe")},
        "log": str(host.places.log_dir / "datasystem-probe.log"),
    }
    file = {"path": str(liveness)}
    checks = (
        CheckSpec("process", "process", 1.0, 1.0, witness=True, local=True),
        # its timeout is the age at which the file counts as stale
        CheckSpec(
            "liveness",
            "worker-liveness",
            0.5,
            3.0,
            failures=1,
            witness=True,
            after=("kv",),
            params=file,
        ),
        # A worker whose own key is not ready for 30 s is restarted alone. One that the ring has lost is not cured by
        # that: the ring check only observes, and the cache group judges it.
        CheckSpec("key", "worker-key", 2.0, 2.0, failures=15, gate=True, params=where),
        CheckSpec("ring", "worker-ring", 2.0, 2.0, failures=15, gate=True, act=False, params=where),
        # starved cores make it late: three misses of 2 s have restarted a worker that was well
        CheckSpec("kv", "worker-kv", 1.0, 5.0, failures=3, gate=True, after=("key", "ring"), params=probe),
    )
    return ComponentSpec(
        NAME,
        "worker",
        Plane.CACHE,
        (*argv, "start", *launcher, "-w", *words),
        env,
        directory,
        host.log(NAME),
        lives_with=GROUP,
        takes_groups=ds.on_worker_restart == "group",
        launcher=True,
        start_timeout_s=ds.start_timeout + 10.0,
        stop_grace_s=20.0,
        checks=tuned(cluster, "worker", checks),
        ports=(PortNeed(host.address, ds.port, "datasystem.port"),),
        stale=(directory / "datasystem/probe", directory / "datasystem/uds", liveness),
        memory=MemoryNeed(ds.shared_memory, ds.huge_pages),
        url=address,
    )


def _tls(tls: Tls | None) -> dict[str, str]:
    """How the worker proves itself to etcd, unless its own `args` give it another certificate."""
    if tls is None:
        return {}
    own = {"etcd_cert": tls.cert, "etcd_key": tls.key}
    return {"enable_etcd_auth": "true", "etcd_ca": str(tls.ca), **{k: str(v) for k, v in own.items() if v}}


def _numa(host: Host) -> list[str]:
    numa = host.cluster.datasystem.numa
    words = []
    for name in ("interleave", "cpunodebind", "physcpubind", "preferred", "membind"):
        value = getattr(numa, name)
        if value is not None:
            words += [f"--{name}", value]
    return [*words, "--localalloc"] if numa.localalloc else words


def sdk_python(argv: tuple[str, ...]) -> str:
    """The interpreter that has the SDK: the one of dscli's first line, or the first word of `python -m …`."""
    if len(argv) > 1:
        return argv[0]
    try:
        with open(argv[0], "rb") as f:
            first, second = f.readline(4096), f.readline(4096)
    except OSError:
        return "python3"
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    match os.path.basename(words[0]) if words else "":
        case "env":
            # #!/usr/bin/env -S NAME=VALUE python3 -u
            words = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
        case "sh":
            # what is long or has blanks does not fit into a first line: #!/bin/sh, then '''exec' "/a b/python" …
            words = _shell_words(os.fsdecode(second))[1:]
    return words[0] if words else "python3"


def _shell_words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return []


def socket_dir(spec: ComponentSpec) -> Path:
    return spec.dir / "datasystem/uds"


def read_death(how: Exit, ready: bool, lines: list[str], logs: Path, pid: int | None) -> Cause:
    """The cause of an exit that nobody asked for.

    `lines`: dscli's output; `logs`: the worker's own log directory; `pid`: its own, None where it is not known.
    """
    if not ready:
        told = [x.strip().removeprefix("output: ") for x in lines if x.strip() and not x.startswith("---")]
        wrong = [x for x in told if any(words in x for words in _CONFIGURATION)]
        # the worker's own words, then dscli's first: its last one only says that it failed
        failed = [x for x in told if " | E | " in x] or [x for x in told if "FAILED" in x or "rror" in x] or told[-1:]
        reason = Reason.CONFIGURATION if wrong else Reason.START_FAILED
        evidence = (wrong or failed or [""])[0].rpartition(" |  ")[2].strip()
        return Cause(reason, f"did not start: {how}", short(evidence, 300), NAME)
    for phrase in ("need kill local worker", "ready for passive scaling down"):
        line = _last_line(logs, phrase, pid)
        if line:
            return Cause(Reason.EXITED, f"exited: {how}: it ended itself, out of the ring", line, NAME)
    # on a host without a free core it loses its lease, counts itself as failed and ends without a word of its own
    stood = _last_line(logs, "Worker was hanged about", pid) if how.signal else ""
    return Cause(Reason.EXITED, f"exited: {how}", stood, NAME)


def newest_log(logs: Path) -> Path | None:
    """The worker's own log: its stdout goes nowhere."""
    try:
        return max(logs.glob("*INFO.log"), key=lambda p: p.stat().st_mtime, default=None)
    except OSError:
        return None


def _last_line(logs: Path, words: str, pid: int | None) -> str:
    """The last line with these words that this very process wrote, in the last 64 KiB of the newest log."""
    newest = newest_log(logs)
    if newest is None:
        return ""
    try:
        with open(newest, "rb") as f:
            f.seek(max(0, newest.stat().st_size - 65536))
            text = f.read().decode("utf-8", "replace")
    except OSError:
        return ""
    said = (x.strip() for x in reversed(text.splitlines()) if words in x)
    return next((short(x, 300) for x in said if pid is not None and _writer(x) == pid), "")


def _writer(line: str) -> int | None:
    """The pid in a line such as `TIME | I | FILE:LINE | POD | PID:TID | …`: all instances write to one file."""
    fields = line.split("|", 5)
    pid = fields[4].partition(":")[0].strip() if len(fields) > 5 else ""
    return int(pid) if pid.isdigit() else None
