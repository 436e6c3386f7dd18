"""etcd on this node: its command line, how it proves itself, and how its death reads."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from yrnode.components import environment, proxies
from yrnode.components.checks import tuned
from yrnode.components.host import Host
from yrnode.config.layout import etcd_clients, etcd_peers
from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import short
from yrnode.model.spec import CheckSpec, ComponentSpec, PortNeed
from yrnode.model.state import Plane
from yrnode.process.exit import Exit
from yrnode.store.keys import ClusterKeys

NAME = "etcd"
QUOTA_BYTES = 8 * 1024**3
UNSUPPORTED = "ETCD_UNSUPPORTED_ARCH"
_CONFIGURATION = (
    "conflicting environment variable",
    "flag provided but not defined",
    "error verifying flags",
    "etcd on unsupported platform",
)
_DAMAGED = (
    # the database is gone, or older than the log's snapshot
    "failed to recover v3 backend from snapshot",
    "failed to find database snapshot file",
    "failed to load snapshot",
    "Was the raft log corrupted, truncated, or lost?",
    # bbolt
    "failed to open database",
    "invalid database",
    "freelist",
    "freepages",
    "already freed",
    "invalid type: unknown",
    # a page that cannot be read, under the database's memory map
    "fatal error: fault",
    # the write-ahead log
    "crc mismatch",
    "proto: ",
    "wal: ",
    "failed to read WAL",
    "unexpected EOF",
)
# etcd ends with code 0 when its cluster has removed it, and says so in a warning
_OUTCAST = (
    "the member has been permanently removed from the cluster",
    "has already been bootstrapped",
    "cluster ID mismatch",
    "member count is unequal",
    "unmatched member while checking PeerURLs",
)
# said of files that are whole
_REFUSED = ("permission denied", "read-only file system", "no space left on device", "too many open files")


def spec(host: Host) -> ComponentSpec:
    cluster, etcd = host.cluster, host.cluster.etcd
    argv = environment.find_program(cluster.bin.etcd, host.caller)
    peers = etcd_peers(cluster)
    client, peer = etcd_clients(cluster)[host.node], peers[host.node]
    flags = {
        "name": host.node,
        "data-dir": str(host.places.etcd_data_dir),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": ",".join(f"{n}={url}" for n, url in peers.items()),
        "initial-cluster-token": cluster.cluster,
        "initial-cluster-state": "new",
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "quota-backend-bytes": str(QUOTA_BYTES),
        # 3.4 would else write lines that nobody can tell apart
        "logger": "zap",
    }
    if etcd.tls:
        for side in ("", "peer-"):
            flags |= {f"{side}trusted-ca-file": str(etcd.tls.ca)}
            flags |= {f"{side}cert-file": str(etcd.tls.cert), f"{side}key-file": str(etcd.tls.key)}
        if etcd.auth:
            # the worker's user is the CN of its certificate
            flags["client-cert-auth"] = "true"
    flags |= etcd.args
    quota = int(flags["quota-backend-bytes"])
    key = ClusterKeys(cluster.cluster).probe(host.node)
    others = {n: url for n, url in peers.items() if n != host.node}
    # a member that does not answer for its quorum is asked once more, for itself
    read = {"key": key, "url": client} if others else {"key": key}
    quorum = CheckSpec(
        "quorum", "etcd-quorum", 1.0, 3.0, gate=True, act=False, params={"peer": peer, "others": others}
    )
    checks = (
        CheckSpec("process", "process", 1.0, 1.0, witness=True, local=True),
        *((quorum,) if others else ()),
        # Alone it may be a slow disk, which a restart does not make faster. One that is stopped is seen by both.
        CheckSpec("read", "etcd-read", 1.0, 2.0 if others else 1.0, failures=10, params=read),
        CheckSpec("write", "etcd-write", 10.0, 2.0, gate=True, watch=False, params={"key": key}, gate_period_s=0.1),
        CheckSpec("alarms", "etcd-alarms", 5.0, 5.0, failures=1, act=False, params={"quota": quota}),
    )
    return ComponentSpec(
        NAME,
        "etcd",
        Plane.STORE,
        argv + tuple(f"--{k}={v}" for k, v in flags.items()),
        environment.with_program({**proxies.direct(cluster, environment.base(host.caller)), **_platform()}, argv),
        host.dir(NAME),
        host.log(NAME),
        start_timeout_s=60.0,
        stop_grace_s=10.0,
        checks=tuned(cluster, "etcd", checks),
        ports=(
            PortNeed(host.address, etcd.client_port, "etcd.client_port"),
            PortNeed(host.address, etcd.peer_port, "etcd.peer_port"),
        ),
        data_dir=host.places.etcd_data_dir,
        replicas=len(peers),
        url=client,
    )


def _platform() -> dict[str, str]:
    """etcd 3.4 starts on aarch64 only when it is told that this is meant; later ones do not mind."""
    return {UNSUPPORTED: "arm64"} if platform.machine() == "aarch64" else {}


def read_death(how: Exit, ready: bool, lines: list[str], data_dir: Path | None = None, replicas: int = 1) -> Cause:
    """The cause of an exit that nobody asked for. `lines`: the end of this instance's own output."""
    text = _last_words(lines)
    told = _outcast(lines)
    if told:
        return Cause(Reason.MEMBER, "no member of its cluster", told, NAME)
    if any(words in text for words in _CONFIGURATION):
        return Cause(Reason.CONFIGURATION, f"exited: {how}", text, NAME)
    if any(words in text for words in _DAMAGED) and not any(words in text for words in _REFUSED):
        return Cause(
            Reason.DAMAGED, "data directory damaged: disk or power", f"{text}; {_cure(data_dir, replicas)}", NAME
        )
    return Cause(Reason.EXITED if ready else Reason.START_FAILED, f"exited: {how}", text, NAME)


def _cure(data_dir: Path | None, replicas: int) -> str:
    """What an operator may do, and what it costs. yrnode leaves the directory as it is."""
    cost = "it then starts empty: the workers restart and lose what they hold, engines stay"
    if replicas > 1:
        cost = "it then gets its data from the other members: nothing else restarts"
    return f"restore a good copy of {data_dir}, or move it away, and run: yrnode restart etcd ({cost})"


def _outcast(lines: list[str]) -> str:
    """What a server said that ended because it is no member. Connections of one that lives say the same at times."""
    for line in reversed(lines):
        if any(words in line for words in _OUTCAST):
            level, text = _entry(line)
            if level in ("fatal", "panic") or text.startswith("server error"):
                return text
    return ""


def _last_words(lines: list[str]) -> str:
    """Why it ended: its log's last fatal entry, else what Go prints first of a panic, else its last error."""
    entries = [_entry(line) for line in lines]
    for level, text in reversed(entries):
        if level in ("fatal", "panic"):
            return text
    plain = next((text for level, text in entries if level == "plain"), "")
    return plain or next((text for level, text in reversed(entries) if level == "error"), "")


def _entry(line: str) -> tuple[str, str]:
    """(level, words) of one line of etcd's log, which is JSON except for what its flag parser and Go itself print."""
    try:
        entry = json.loads(line)
    except ValueError:
        plain = line.startswith(("panic: ", "fatal error: ")) or any(words in line for words in _CONFIGURATION)
        return ("plain", short(line.strip(), 300)) if plain else ("", "")
    if not isinstance(entry, dict):
        return "", ""
    text = str(entry.get("msg", ""))
    for more in ("error", "environment-variable"):
        if entry.get(more):
            text += f": {entry[more]}"
    return str(entry.get("level", "")), short(text, 300)
