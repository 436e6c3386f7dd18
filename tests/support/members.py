"""Three real daemons of which each runs one real member of etcd, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.support.cluster import YrCluster, address, cluster_of
from tests.support.etcd import ETCD_35, post
from tests.support.node import YrNode

NODES = ("n0", "n1", "n2")


def text(binary: Path = ETCD_35, more: str = "") -> str:
    """A cluster file with a member of etcd on all three nodes."""
    found = cluster_of(3, more=more).replace("etcd: {nodes: [n0],", "etcd: {nodes: [n0, n1, n2],")
    return found.replace("bin: {", f"bin: {{etcd: {binary}, ")


def only_etcd(node: YrNode) -> None:
    """As if an operator had stopped its worker: ranks wait for that one."""
    node.home.mkdir(parents=True, exist_ok=True)
    (node.home / "wishes.json").write_text(json.dumps({"unwanted": {"worker": "only etcd is looked at"}}))


def url(node: YrNode) -> str:
    port = node.config.read_text().partition("client_port: ")[2].split(",")[0]
    return f"http://{address(int(node.name[1:]))}:{port}"


def listed(node: YrNode) -> dict[str, int]:
    """The members that have started, as this node's one knows them: ids by name."""
    found = post(url(node), "cluster/member/list", {})["members"]
    return {m["name"]: int(m["ID"]) for m in found if m.get("clientURLs")}


def leader(c: YrCluster) -> str:
    """The node whose member leads; empty while nobody does."""
    for name, node in c.nodes.items():
        try:
            status = post(url(node), "maintenance/status", {}, 2)
        except OSError:
            continue
        if status.get("leader") == status["header"]["member_id"]:
            return name
    return ""


def etcd(node: YrNode) -> dict[str, Any]:
    return node.component("etcd")


def quorum(node: YrNode) -> str:
    """What the check says of a member that is ready; empty for any other."""
    found = etcd(node)
    return found["checks"]["quorum"]["evidence"] if found.get("state") == "ready" else ""


def whole(c: YrCluster, names: tuple[str, ...] = NODES) -> bool:
    return all(quorum(c[n]) == "3 of 3 members are there" for n in names)


def told(node: YrNode) -> list[str]:
    """What was done about its member, in order."""
    found = [e["what"] for e in node.events() if e["target"] == "etcd"]
    return [what for what in found if what.startswith("member-") and what != "member-wait"]


def kept(node: YrNode) -> bool:
    """Whether the node remembers that it was a member."""
    return (node.home / "etcd-member.json").exists()


def go_down(node: YrNode) -> None:
    """Daemon and member die at once, as with the host."""
    pid = node.pids()["etcd"]
    node.kill()
    os.kill(pid, signal.SIGKILL)


def lose_data(node: YrNode) -> None:
    shutil.rmtree(node.home / "etcd")
