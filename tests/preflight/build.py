"""A host of a cluster file, and the verdicts of findings, for tests of single checks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from yrnode.components import node
from yrnode.config.load import load
from yrnode.preflight.finding import Finding, Look

CLUSTER = """
cluster: c
nodes: {n0: {address: 127.0.0.1}}
datasystem: {shared_memory: 64MB}
groups: {serve: {ranks: {n0: 2}, tensor_parallel: 2, model: m, kv_connector: {ascend_store: {}}}}
bin: {vllm: [python, -m, x]}
state_dir: ./state
run_dir: ./run
log_dir: ./log
"""


def look(
    where: Path, text: str = CLUSTER, *, runs: bool = False, root: Path = Path("/"), path: str = "/nowhere"
) -> Look:
    """At node n0 of that file, with `path` as PATH."""
    file = where / "cluster.yaml"
    file.write_text(text)
    host = node.host_of(load(file), "n0", {"PATH": path, "HOME": "/root"})
    return Look(host, node.specs(host), runs, root)


def verdicts(found: Iterable[Finding]) -> list[str]:
    return [f.verdict.value for f in found]
