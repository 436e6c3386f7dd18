"""What a soak runs on: a real node, who starts its daemon again, a light load, and a look at what must not grow."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.cluster import cluster_of, free_everywhere
from tests.support.node import YrNode
from yrnode.cli.client import Client
from yrnode.cli.place import find
from yrnode.process import atomic, record, table

GROUPS = {"serve": 2, "second": 1}
"""Ranks by group: two groups, so that a fault of one shows that the other is left alone."""
REQUEST_S = 30.0
REQUEST_EACH_S = 0.5
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def cluster_file() -> str:
    """One node with etcd, a worker and two groups of stand-in ranks, on free ports."""
    first = free_everywhere(1, 8)
    rank = "model: demo, args: {served-model-name: demo}, kv_connector: {ascend_store: {}}"
    groups = (
        f"\n  serve: {{ranks: {{n0: 2}}, port: {first + 4}, {rank}}}"
        f"\n  second: {{ranks: {{n0: 1}}, port: {first + 6}, devices: {{n0: [2]}}, {rank}}}"
    )
    text = cluster_of(1, groups=groups, first=first)
    # a store that is away for the eight seconds of a drill and its own start must cost no worker
    return text.replace("node_timeout: 5s, node_dead_timeout: 10s", "node_timeout: 10s, node_dead_timeout: 30s")


class Node(YrNode):
    """`keep`: whether a daemon that was killed is started again at once, as systemd would."""

    def __init__(self) -> None:
        super().__init__(cluster_file(), "n0")
        self.run_dir = self.dir / "n0/run"
        self.keep = True
        self.starts = 0
        self.client = Client(find(argparse.Namespace(config=str(self.config), node="n0")))
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep_it, daemon=True)

    def begin(self) -> None:
        self.start()
        self.starts = 1
        self._keeper.start()

    def again(self) -> None:
        """Start a daemon where none runs."""
        self.start()
        self.starts += 1

    def _keep_it(self) -> None:
        while not self._ended.wait(0.1):
            if self.keep and self.process is not None and self.process.poll() == -signal.SIGKILL:
                self.again()

    def end(self) -> int | None:
        """Stop everything in order; the daemon's exit code."""
        self.keep = False
        self._ended.set()
        if self._keeper.is_alive():
            self._keeper.join()
        return self.stop(90) if self.process is not None and self.process.poll() is None else None

    def records(self) -> Iterator[record.Record]:
        for path in self.run_dir.glob("*.json"):
            try:
                found = record.load(path)
            except (atomic.Unreadable, OSError):
                continue
            if found is not None:
                yield found

    def marked(self) -> dict[int, str]:
        """The instance that each living process with our mark says it belongs to."""
        found = {}
        for proc in table.scan():
            mark, home = table.marks(proc.pid)
            if home == str(self.home) and table.alive(proc):
                found[proc.pid] = mark
        return found

    def helpers(self) -> list[table.Proc]:
        """The daemon's own children, which are no component's."""
        daemon = self.process.pid if self.process is not None else 0
        return [p for p in table.scan() if p.ppid == daemon and table.marks(p.pid)[1] != str(self.home)]


class SharedMemory:
    """Which files in /dev/shm processes of ours have ever mapped; others on this host have some there too."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def look(self) -> set[str]:
        """What is mapped now; it is remembered."""
        now: set[str] = set()
        for pid in self._node.marked():
            try:
                with open(f"/proc/{pid}/maps") as f:
                    now |= {line.split(maxsplit=5)[5].strip() for line in f if "/dev/shm/" in line}
            except OSError:
                continue
        with self._lock:
            self._seen |= now
            for one in self._node.records():
                self._seen |= set(one.shm)
        return now

    def left(self) -> list[str]:
        """What is still there and nobody of ours maps."""
        mapped = self.look()
        return sorted(name for name in self._seen - mapped if os.path.exists(name))


@dataclass
class Request:
    """One completion; times are monotonic seconds. `error` is empty for one that was answered in full."""

    rank: str
    began: float
    ended: float
    error: str


class Load:
    """One completion after the other on each rank, asked by a thread of its own."""

    def __init__(self, urls: dict[str, str]) -> None:
        self.done: list[Request] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=u, daemon=True) for u in urls.items()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _ask(self, rank: str, url: str) -> None:
        count = 0
        while not self._ended.wait(REQUEST_EACH_S):
            count += 1
            # every fourth is an old one, which a cache may have
            prompt = f"{rank} {count % 4 and count} " + "word " * 60
            data = json.dumps({"model": "demo", "prompt": prompt, "max_tokens": 8, "ignore_eos": True}).encode()
            began = time.monotonic()
            error = ""
            try:
                request = urllib.request.Request(f"{url}/v1/completions", data, {"Content-Type": "application/json"})
                with _OPEN(request, timeout=REQUEST_S) as answer:
                    if json.load(answer)["usage"]["completion_tokens"] != 8:
                        error = "fewer tokens than were asked for"
            except (OSError, ValueError, KeyError) as e:
                error = str(e) or repr(e)
            except Exception as e:  # http.client's own, such as an answer that breaks off
                error = repr(e)
            self.done.append(Request(rank, began, time.monotonic(), error))

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(REQUEST_S + 5)


@dataclass
class Gauges:
    """What a look at the daemon shows, by name; `at` monotonic seconds, `daemon` counts its starts."""

    at: float
    daemon: int
    values: dict[str, float] = field(default_factory=dict)


def look(node: Node) -> Gauges | None:
    """None where the daemon does not answer."""
    code, text = node.get("/metrics")
    pid = node.process.pid if node.process is not None else 0
    if code != 200:
        return None
    samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
    state = node.home
    try:
        values = {
            "resident_bytes": samples["yrnode_daemon_resident_bytes"],
            "open_files": samples["yrnode_daemon_open_files"],
            "tasks": samples["yrnode_daemon_tasks"],
            "threads": float(len(os.listdir(f"/proc/{pid}/task"))),
            "event_file_bytes": float(sum(p.stat().st_size for p in state.glob("events.jsonl*"))),
            "state_dir_bytes": float(_size(state)),
            "run_dir_entries": float(sum(1 for _ in node.run_dir.rglob("*"))),
            "shm_files": float(len({s for one in node.records() for s in one.shm})),
            "cpu_seconds": (p.cpu_ticks if (p := table.read(pid)) else 0) / table.TICKS_PER_S,
        }
    except (OSError, KeyError):
        return None
    return Gauges(time.monotonic(), node.starts, values)


def _size(state: Path) -> int:
    """Bytes of what yrnode itself keeps: not etcd's data, of which a drill keeps copies, nor the events."""
    total = 0
    for folder, folders, names in os.walk(state):
        folders[:] = [f for f in folders if not f.startswith(("data", "etcd"))]
        for name in names:
            if not name.startswith("events.jsonl"):
                try:
                    total += os.lstat(os.path.join(folder, name)).st_size
                except OSError:
                    continue
    return total


def urls(status: dict[str, Any]) -> dict[str, str]:
    """Where each rank listens, by its name."""
    return {
        name: c["checks"]["health"]["evidence"].partition("/health")[0]
        for name, c in status["components"].items()
        if c["plane"] == "engine"
    }
