"""HCCL's ports that may meet with others: nobody knows which of a range it takes, so `check` alone tells of them."""

from __future__ import annotations

from yrnode.config.cluster import Cluster
from yrnode.config.hccl import BASE_PORT
from yrnode.config.ports import doubts
from yrnode.config.yaml import dotted
from yrnode.preflight.finding import UNVERIFIED, Finding, Look, good, warning

NAME = "HCCL's ports"


def look(at: Look) -> list[Finding]:
    return judge(at.host.cluster, at.host.node)


def judge(cluster: Cluster, node: str) -> list[Finding]:
    found = []
    for hccl, use, port in doubts(cluster, node):
        words = f"{hccl.what} and {use.what} ({dotted(use.path)}) may both take port {port}"
        cure = f"write {BASE_PORT} of its own for each group"
        if not use.hccl:
            cure = f"write another port, or {BASE_PORT} under {dotted((*hccl.path, 'env'))}"
        found.append(warning(NAME, words, f"ports of its own for each ({UNVERIFIED})", cure))
    return found or [good(NAME, "none that another one of the file may meet")]
