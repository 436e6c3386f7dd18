"""Several real `yrnode run` on one host, each on a loopback address of its own, sharing one cluster file."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.node import YrNode


def address(i: int) -> str:
    return f"127.0.0.{i + 2}"


def free_everywhere(nodes: int, width: int = 1) -> int:
    """A port that is free on every node's address, with `width - 1` more behind it."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 4
    low, high = 20000 + 3000 * worker, 20000 + 3000 * (worker + 1) - width
    for port in random.sample(range(low, high), 300):
        with contextlib.ExitStack() as held:
            try:
                for i in range(nodes):
                    for p in range(port, port + width):
                        probe = held.enter_context(socket.socket())
                        probe.bind((address(i), p))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free on all addresses")


def cluster_of(
    nodes: int,
    *,
    ranks: int = 1,
    more: str = "",
    args: str = "",
    groups: str = "",
    at: Callable[[int], str] = address,
    first: int = 0,
) -> str:
    """A cluster file for `nodes` nodes n0, n1, …: etcd on n0, a worker everywhere, `ranks` of one group on each.

    `groups` goes in place of that group; `at`: each node's address; `first`: the first of the ports, found when 0.
    """
    first = first or free_everywhere(nodes, 4 + ranks)
    client, peer, worker, api, rank = range(first, first + 5)
    own = "\n".join(
        f'  n{i}: {{address: {at(i)}, api: {{listen: "{at(i)}:{api}"}}, '
        f"state_dir: ./n{i}/state, run_dir: ./n{i}/run, log_dir: ./n{i}/log}}"
        for i in range(nodes)
    )
    serve = f"""
  serve:
    ranks: {{{", ".join(f"n{i}: {ranks}" for i in range(nodes))}}}
    port: {rank}
    model: demo
    args: {{served-model-name: demo{args}}}
    kv_connector: {{ascend_store: {{}}}}"""
    return f"""
cluster: c{os.getpid()}
nodes:
{own}
bin: {{vllm: [python, -m, yrnode.demo.engine]}}
etcd: {{nodes: [n0], client_port: {client}, peer_port: {peer}}}
datasystem: {{port: {worker}, shared_memory: 256MB, node_timeout: 5s, node_dead_timeout: 10s}}
groups:{groups or serve}
{more}
"""


class YrCluster:
    """`nodes` by name, all below one directory."""

    def __init__(self, text: str, names: Sequence[str], kind: type[YrNode] = YrNode) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="yrc-", dir="/tmp"))
        self.nodes = {name: kind(text, name, self.dir) for name in names}

    def __getitem__(self, name: str) -> YrNode:
        return self.nodes[name]

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """The first true value; fails with every daemon's last words at the deadline."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
            ended = [
                n
                for n, node in self.nodes.items()
                if node.process is not None and node.process.poll() not in (None, 0, -9)
            ]
            if ended:
                what += f", because {', '.join(ended)} ended"
                break
        words = "\n".join(f"--- {name}\n{node.tail()}" for name, node in self.nodes.items())
        raise AssertionError(f"no {what} within {seconds} s:\n{words}")

    def wait_ready(self, seconds: float = 120.0) -> None:
        self.wait("ready", lambda: all(n.status()["ready"] for n in self.nodes.values()), seconds)

    def life(self, group: str = "serve") -> set[tuple[int, str]]:
        """What each daemon that answers says of the group: generation and stage."""
        found = [n.status()["groups"].get(group) for n in self.nodes.values()]
        return {(g["generation"], g["stage"]) for g in found if g}

    def going(self, group: str = "serve") -> int:
        """The life that every daemon says goes on."""
        ((n, stage),) = self.life(group)
        assert stage == "go"
        return n

    def in_order(self, *groups: str) -> bool:
        """Every node is ready, and all say the same of each group (serve when none is named)."""
        return all(n.status()["ready"] for n in self.nodes.values()) and all(
            len(self.life(g)) == 1 for g in groups or ("serve",)
        )

    def bumps(self, group: str = "serve") -> list[int]:
        """The lives that some node has begun, each counted once for every node that says that it wrote it."""
        own = [e for n in self.nodes.values() for e in n.events() if (e["target"], e["what"]) == (group, "bump")]
        return [e["generation"] for e in own if "written by" not in e.get("evidence", "")]

    def pids(self, kind: str = "") -> dict[str, int]:
        """By `node component`, of those whose name begins with `kind`."""
        return {
            f"{name} {c}": pid
            for name, node in self.nodes.items()
            for c, pid in node.pids().items()
            if c.startswith(kind)
        }

    def close(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.process.terminate()
        for node in self.nodes.values():
            node.close()
        shutil.rmtree(self.dir, ignore_errors=True)


@contextlib.contextmanager
def cluster(text: str, nodes: int, *, start: bool = True) -> Iterator[YrCluster]:
    found = YrCluster(text, [f"n{i}" for i in range(nodes)])
    try:
        if start:
            found.start()
        yield found
    finally:
        found.close()
