"""Hosts from the text of a cluster file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from yrnode.components import node
from yrnode.components.host import Host
from yrnode.config.load import load
from yrnode.model.spec import ComponentSpec

ROOT = Path(__file__).resolve().parents[2]
CALLER = {"PATH": "/usr/bin:/bin", "HOME": "/root"}

BASE = """
cluster: c
nodes: {n0: {address: 10.0.0.1}}
groups: {serve: {ranks: {n0: 1}, model: /models/m}}
"""
PAIR = """
cluster: c
nodes: {n0: {address: 10.0.0.1}, n1: {address: 10.0.0.2}}
etcd: {nodes: [n1]}
groups:
  serve: {ranks: {n0: 1, n1: 2}, model: /models/m, port: 7000, rpc_port: 9500, tensor_parallel: 4}
"""
THREE = """
cluster: c
nodes: {n0: {address: 10.0.0.1}, n1: {address: 10.0.0.2}, n2: {address: 10.0.0.3}, n3: {address: 10.0.0.4}}
etcd: {nodes: [n0, n1, n2]}
groups: {serve: {ranks: {n3: 1}, model: /models/m}}
"""

HostOf = Callable[..., Host]


def by_name(host: Host) -> dict[str, ComponentSpec]:
    return {spec.name: spec for spec in node.specs(host)}


def flags(argv: tuple[str, ...]) -> dict[str, str]:
    """--a=1 and --b 2 as {"a": "1", "b": "2"}; a flag alone has no text."""
    found: dict[str, str] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = value
            name = "" if equals else name
        elif name:
            found[name] = word
            name = ""
    return found


@pytest.fixture
def host_of(tmp_path: Path) -> HostOf:
    """The host of a node from a cluster file's text; `caller` is yrnode's own environment."""

    def make(text: str, name: str = "n0", caller: Mapping[str, str] = CALLER) -> Host:
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return node.host_of(load(path), name, caller)

    return make


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Host:
    path = tmp_path_factory.mktemp("demo") / "cluster.yaml"
    path.write_text((ROOT / "config/local-demo.yaml").read_text())
    return node.host_of(load(path), "n0", CALLER)
