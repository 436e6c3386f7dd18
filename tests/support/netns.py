"""Nodes with a network of their own each: one network namespace a node, behind a bridge in another one.

Nothing of it is seen by the host's own network, and all of it ends with the processes that hold the namespaces.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.support.cluster import YrCluster
from tests.support.node import YrNode
from yrnode.cli.client import UnixConnection
from yrnode.cli.place import SOCKET

_TOOLS = ("ip", "bridge", "nsenter", "unshare")


def address(i: int) -> str:
    return f"10.77.0.{i + 1}"


class _Namespace:
    """Held open by a process that only sleeps."""

    def __init__(self) -> None:
        # cat says a word once it is inside, and ends with us
        argv = ["unshare", "--net", "--", "cat"]
        self._holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._holder.stdin
        assert self._holder.stdout
        self._holder.stdin.write(b"in\n")
        self._holder.stdin.flush()
        assert self._holder.stdout.readline() == b"in\n"
        self.pid = self._holder.pid
        self.prefix = ("nsenter", f"--net=/proc/{self.pid}/ns/net", "--")

    def run(self, *words: str) -> None:
        subprocess.run([*self.prefix, *words], check=True, capture_output=True, timeout=10)

    def close(self) -> None:
        self._holder.communicate(timeout=10)


class Switch:
    """A bridge with one port for each of `names`; a port can be cut, silently as a switch that fails."""

    def __init__(self, names: Sequence[str]) -> None:
        self._middle = _Namespace()
        self.nodes: dict[str, _Namespace] = {}
        self._middle.run("ip", "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        self._middle.run("ip", "link", "set", "br0", "up")
        for i, name in enumerate(names):
            node = self.nodes[name] = _Namespace()
            port = ("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(node.pid))
            self._middle.run(*port)
            self._middle.run("ip", "link", "set", name, "master", "br0", "up")
            node.run("ip", "link", "set", "lo", "up")
            node.run("ip", "address", "add", f"{address(i)}/24", "dev", "eth0")
            node.run("ip", "link", "set", "eth0", "up")

    def cut(self, name: str) -> None:
        """From here on every packet from and to the node is lost; its link stays up."""
        self._middle.run("bridge", "link", "set", "dev", name, "state", "0")

    def mend(self, name: str) -> None:
        self._middle.run("bridge", "link", "set", "dev", name, "state", "3")

    def close(self) -> None:
        for namespace in (*self.nodes.values(), self._middle):
            namespace.close()


class NetNode(YrNode):
    """A node inside its namespace, asked over its control socket, which no cut reaches."""

    inside: tuple[str, ...] = ()

    def start(self, env: dict[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        super().start(env, (*self.inside, *prefix))

    def get(self, path: str) -> tuple[int, str]:
        connection = UnixConnection(self.dir / self.name / "run" / SOCKET, 5.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()


@contextlib.contextmanager
def networked(text: str, nodes: int) -> Iterator[tuple[YrCluster, Switch]]:
    """`text`: a cluster file made with this module's `address`. Skips where namespaces cannot be made."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"network namespaces need root and {', '.join(missing or _TOOLS)}")
    names = [f"n{i}" for i in range(nodes)]
    switch = Switch(names)
    found = YrCluster(text, names, NetNode)
    try:
        for name, node in found.nodes.items():
            assert isinstance(node, NetNode)
            node.inside = switch.nodes[name].prefix
        found.start()
        yield found, switch
    finally:
        found.close()
        switch.close()
