"""`etcd` and `dscli start` in a script → the cluster file's `etcd` and `datasystem`."""

import os
import re
from dataclasses import dataclass, field
from typing import Any

from yrnode.config.scripts import values
from yrnode.config.scripts.bash import Command, Script
from yrnode.config.scripts.flags import flags, place, text_of, words_of
from yrnode.config.scripts.notes import Notes, add

_OWN_PLACE = "yrnode has its own place for it, and reads and clears it there"
_PLACES = (
    *("liveness_check_path", "health_check_path", "ready_check_path", "log_dir", "rocksdb_store_dir"),
    *("unix_domain_socket_dir", "monitor_config_file"),
)
_URLS = ("advertise-client-urls", "initial-advertise-peer-urls", "listen-client-urls", "listen-peer-urls")
_ETCD_DROPPED = {
    "name": "yrnode calls a member like its node",
    "initial-cluster-state": "yrnode decides whether a member is new",
    "initial-cluster-token": "it is the cluster's name",
    "logger": "yrnode reads etcd's log, and sets it",
    "log-outputs": "yrnode reads etcd's log, and sets it",
}
_NUMA = {"cpunodebind": "-N", "physcpubind": "-C", "interleave": "-i", "preferred": "-p", "membind": "-m"}
_NUMA_SHORT = {short: f"--{name}" for name, short in _NUMA.items()}


@dataclass
class Etcd:
    """One etcd member."""

    file: str
    line: int
    program: str
    host: str
    """Its own address; may be unknown."""
    client_port: int | None
    peer_port: int | None
    members: dict[str, str]
    """Address of each member by name."""
    data_dir: str
    args: dict[str, str]


@dataclass
class Worker:
    """One `dscli start`."""

    file: str
    line: int
    program: str
    host: str
    port: int | None
    etcd: list[tuple[str, int | None]]
    keys: dict[str, Any] = field(default_factory=dict)
    """Of `datasystem`, as the cluster file takes them."""
    args: dict[str, str] = field(default_factory=dict)


def is_etcd(words: list[str]) -> bool:
    """etcd as a server; `etcd --version` is none."""
    flags_ = {word.partition("=")[0].lstrip("-") for word in words[1:] if word.startswith("-")}
    return os.path.basename(words[0]) == "etcd" and bool(flags_ & {*_URLS, "initial-cluster", "data-dir", "name"})


def is_worker(words: list[str]) -> bool:
    """`dscli start`, also under numactl."""
    return "start" in words and any(os.path.basename(word) == "dscli" for word in words[: words.index("start")])


def etcd(script: Script, command: Command, words: list[str], notes: Notes) -> Etcd:
    """The member that a command starts."""
    first, found, odd = flags(_two_dashes(words[1:]))
    for word in [*first, *odd]:
        add(notes.not_read, script.file, command.line, word, "it is given twice, or is no flag of etcd")
    text = {name: text_of(value) for name, value in found.items()}
    client, peer = text.get("advertise-client-urls") or "", text.get("initial-advertise-peer-urls") or ""
    listens = [text.get(f"listen-{kind}-urls") or "" for kind in ("client", "peer")]
    ports = [_port(script, command, notes, pair) for pair in zip((client, peer), listens, strict=True)]
    members = {}
    for pair in (text.get("initial-cluster") or "").split(","):
        name, _, url = pair.partition("=")
        if name and url:
            members[name] = place(url)[0]
    args: dict[str, str] = {}
    for name, value in found.items():
        if name in _URLS or name in ("initial-cluster", "data-dir"):
            continue
        if name in _ETCD_DROPPED:
            shown = f"--{name} {' '.join(words_of(value))}"
            add(notes.dropped, script.file, command.line, shown, _ETCD_DROPPED[name])
        else:
            args[name] = text_of(value) or "true"
    for listen in listens:
        host = place(listen)[0]
        if host and host != place(client)[0]:
            why = "etcd listens on its node's address, which the others use"
            add(notes.dropped, script.file, command.line, listen, why)
    host = place(client or peer)[0]
    return Etcd(
        script.file, command.line, words[0], host, ports[0], ports[1], members, text.get("data-dir") or "", args
    )


def _two_dashes(words: list[str]) -> list[str]:
    """etcd's flags may have one dash, and always hold their value with `=` or as the next word."""
    return [f"-{w}" if re.match(r"-[a-z]", w) else w for w in words]


def _port(script: Script, command: Command, notes: Notes, urls: tuple[str, str]) -> int | None:
    found = [place(url.split(",")[0])[1] for url in urls if url]
    port = next((p for p in found if p is not None), None)
    if found and port is None:
        why = "its port is not known; etcd's own is taken"
        add(notes.open, script.file, command.line, urls[0] or urls[1], why)
    return port


def worker(script: Script, command: Command, words: list[str], notes: Notes) -> Worker:
    """The worker that a command starts."""
    at = words.index("start")
    launcher, rest = words[at + 1 :], []
    for cut in ("-w", "--worker_args"):
        if cut in launcher:
            launcher, rest = launcher[: launcher.index(cut)], launcher[launcher.index(cut) + 1 :]
            break
    program = next(word for word in words[:at] if os.path.basename(word) == "dscli")
    first, found, odd = flags([_underscores(word) for word in rest])
    for word in [*first, *odd]:
        add(notes.not_read, script.file, command.line, word, "it is given twice, or is no flag of the worker")
    text = {name: text_of(value) or "true" for name, value in found.items()}
    host, port = place(text.pop("worker_address", ""))
    etcds = [place(part) for part in text.pop("etcd_address", "").split(",") if part]
    out = Worker(script.file, command.line, program, host, port, etcds)
    _launcher(script, command, notes, out, [*words[:at], *launcher])
    for name, value in text.items():
        if name in _PLACES:
            add(notes.dropped, script.file, command.line, f"--{name} {value}", _OWN_PLACE)
        elif not values.known(value):
            add(notes.open, script.file, command.line, f"--{name} {value}", "its value is not known; it is left out")
        else:
            _key(out, name, value)
    return out


def _underscores(word: str) -> str:
    name, equals, value = word.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value if name.startswith("--") else word


def _key(out: Worker, name: str, value: str) -> None:
    """A flag where the cluster file has it; what does not fit its key stays a flag, and the file's check tells it."""
    number = re.fullmatch(r"[0-9]{1,12}", value)
    if name == "shared_memory_size_mb" and number:
        out.keys["shared_memory"] = f"{value}MB"
    elif name in ("node_timeout_s", "node_dead_timeout_s") and number:
        out.keys[name.removesuffix("_s")] = f"{value}s"
    elif name == "enable_huge_tlb" and value.lower() in ("true", "false", "1", "0"):
        out.keys["huge_pages"] = value.lower() in ("true", "1")
    elif name == "remote_h2d_device_ids" and re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", value):
        out.keys["remote_h2d"] = [int(part) for part in value.split(",")]
    elif name == "cluster_name":
        out.keys["cluster_name"] = value
    else:
        out.args[name] = value


def _launcher(script: Script, command: Command, notes: Notes, out: Worker, words: list[str]) -> None:
    """Options of dscli itself, before `-w`, and numactl's."""
    left = [word for word in words if os.path.basename(word) not in ("dscli", "numactl")]
    while left:
        option, equals, value = left.pop(0).partition("=")
        option = _NUMA_SHORT.get(option, option)
        if option in ("--localalloc", "-l"):
            out.keys.setdefault("numa", {})["localalloc"] = True
            continue
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("-") else ""
        if option in ("-t", "--timeout") and re.fullmatch(r"[0-9]{1,6}", value):
            out.keys["start_timeout"] = f"{value}s"
        elif option in ("-d", "--datasystem_home_dir"):
            add(notes.dropped, script.file, command.line, f"{option} {value}", _OWN_PLACE)
        elif option[2:] in _NUMA and option.startswith("--") and values.known(value):
            out.keys.setdefault("numa", {})[option[2:]] = value
        else:
            add(notes.not_read, script.file, command.line, f"{option} {value}".strip(), "dscli's option has no key")
