"""What has been found to break weaker protocols, each by its name: which faults, on how many nodes."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.cluster import Cluster, Rules
from tests.simulation.faults import Fates
from tests.simulation.node import GROUP, Node


@dataclass(frozen=True)
class Scenario:
    """`early`: the faults begin with the first start. `pair`: two groups that restart together."""

    nodes: int
    mix: tuple[str, ...]
    count: int
    early: bool = False
    pair: bool = False


_STORE = ("store_down", "store_copied", "store_restored")

SCENARIOS = {
    "the first start": Scenario(3, ("daemon_dies", "lease_lapses", "host_reboots"), 3, early=True),
    "faults of every kind": Scenario(
        2, ("rank_dies", "rank_hangs", "daemon_dies", "host_reboots", "lease_lapses"), 5
    ),
    "a node is lost": Scenario(2, ("rank_dies", "rank_hangs", "host_is_lost", "host_reboots"), 4),
    "the store is emptied": Scenario(2, ("rank_dies", "host_reboots", "daemon_dies", "store_emptied"), 5),
    "emptied at the first start": Scenario(2, ("rank_dies", "daemon_dies", "store_emptied"), 4, early=True),
    "the store is restored": Scenario(2, ("rank_dies", "host_reboots", "daemon_dies", *_STORE), 6),
    "restored at the first start": Scenario(2, ("daemon_dies", *_STORE), 6, early=True),
    "restored after an operator's restart": Scenario(2, ("operator_restarts", *_STORE), 6),
    "an operator stops a node": Scenario(2, ("rank_dies", "daemon_dies", "operator_stops_node"), 4),
    "an operator stops the group": Scenario(3, ("rank_dies", "daemon_dies", "operator_stops_group"), 4),
    "a pause": Scenario(2, ("rank_dies", "daemon_dies", "lease_lapses", "operator_pauses"), 5),
    "a pause and an emptied store": Scenario(2, ("rank_dies", "daemon_dies", "store_emptied", "operator_pauses"), 5),
    "a fence": Scenario(2, ("daemon_dies", "host_is_lost", "rank_dies", "host_reboots"), 5),
    "a node leaves the file": Scenario(3, ("lease_lapses", "daemon_dies", "node_leaves_the_file"), 4),
    "a node leaves the file and is fenced": Scenario(3, ("host_is_lost", "daemon_dies", "node_leaves_the_file"), 4),
    "gone during a start": Scenario(2, ("daemon_dies", "host_reboots"), 3, early=True),
    "starts that come to no end": Scenario(2, ("rank_dies", "rank_dies", "daemon_dies", "start_sticks"), 5),
    "given up, and the store is emptied": Scenario(2, ("rank_dies", "rank_dies", "rank_dies", "store_emptied"), 6),
    "two groups that restart together": Scenario(2, ("rank_dies", "rank_hangs", "daemon_dies"), 6, pair=True),
    "the two, and operators": Scenario(
        2, ("rank_dies", "operator_restarts", "operator_stops_group", "operator_stops_node"), 5, pair=True
    ),
    "the two, and a store that is lost": Scenario(
        2, ("rank_dies", "rank_dies", "host_reboots", "store_emptied", *_STORE), 6, pair=True
    ),
    "a protocol that changes": Scenario(3, ("rank_dies", "daemon_dies", "protocol_changes", "protocol_changes"), 5),
    "three nodes": Scenario(3, ("rank_dies", "host_reboots", "daemon_dies", "store_emptied"), 4),
}


def stale_fence(seed: int) -> None:
    """A fence is lifted while the one that counts on it hears nothing: n1 has left the file, its rank lives on."""
    c, n0, n1 = _pair(seed)
    c.left = "n1"
    n1.end_daemon()
    n0.world.update_group(GROUP, nodes=("n0",), digest="without")
    c.run(c.now + 8.0)
    c.store.fence("n1")
    c.published()
    c.run(c.now + 1.0)
    n0.deaf_until = c.now + 3.5
    n1.begin_daemon()
    c.run(c.now + 0.3)
    n0.restart()
    c.run(c.now + 60.0)


def second_ring(seed: int, rules: Rules | None = None) -> None:
    """A worker is started on what its node has read before the store was emptied, while the others still run."""
    c, n0, _ = _pair(seed, rules)
    n0.deaf_until = c.now + 30.0
    fates = Fates(c, 1.0, [])
    fates.store_emptied(n0)
    c.run(c.now + 0.5)
    c.die(n0, "worker", "by itself")
    c.run(c.now + 60.0)


def _pair(seed: int, rules: Rules | None = None) -> tuple[Cluster, Node, Node]:
    c = Cluster(2, seed, rules)
    for node in c.nodes.values():
        node.host_up = True
        node.begin_daemon()
    c.run(40.0)
    c.meddled = True
    return c, c.nodes["n0"], c.nodes["n1"]
