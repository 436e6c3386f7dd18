"""What befalls a cluster, drawn from a seed: crashes, hangs, cuts, a lost store, and operators at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.cluster import Cluster
from tests.simulation.node import CACHE, GROUP, Node, group_of
from tests.simulation.store import Backup
from yrnode.policy import trust

FIRST_S, SPAN_S = 60.0, 200.0
"""The first start, and how long faults strike."""
SETTLED_S = 4000.0
"""How long after the last fault a group may take to come to rest: three starts that fail, and their waits."""
CHECK_S = 5.0


@dataclass
class Story:
    """One seed's cluster and how it ended."""

    cluster: Cluster
    ends: dict[str, str]


class Fates:
    """Draws faults for `span` seconds. `mix` names the kinds, each as often as it is named."""

    def __init__(self, cluster: Cluster, span: float, mix: Sequence[str]) -> None:
        self.c, self.span, self.mix = cluster, span, mix
        self.copy: Backup | None = None

    def begin(self, count: int) -> None:
        for _ in range(count):
            kind = self.c.random.choice(self.mix)
            self.c.at(self.c.now + self.c.draw(0.0, self.span), lambda k=kind: self.strike(k))

    def strike(self, kind: str) -> None:
        node = self.c.nodes[self.c.random.choice(self.c.names)]
        self.c.tell(f"FATE {kind} {node.name}")
        getattr(self, kind.replace("-", "_"))(node)

    # ranks and workers

    def rank_dies(self, node: Node) -> None:
        self.c.die(node, node.rank(self.c.group()), "by itself")

    def rank_hangs(self, node: Node) -> None:
        self.c.hang(node, self.c.group())

    def start_sticks(self, node: Node) -> None:
        """Found by its deadline alone."""
        node.sticks = True

    def worker_dies(self, node: Node) -> None:
        self.c.die(node, "worker", "by itself")

    # daemons and hosts

    def daemon_dies(self, node: Node) -> None:
        if node.daemon_up:
            node.end_daemon()
            self._later(self.c.random.choice([0.3, 3.0, 30.0, 90.0]), lambda: self.daemon(node))

    def host_reboots(self, node: Node) -> None:
        if node.host_up:
            self._hurt(node)
            node.end_host()
            self._later(self.c.draw(5.0, 120.0), lambda: self._host(node))

    def host_is_lost(self, node: Node) -> None:
        """For good, until an operator says that it is off, and later brings it back."""
        if node.host_up and not any(n.lost for n in self.c.nodes.values()):
            self._hurt(node)
            node.end_host()
            node.lost = True
            self._later(self.c.draw(20.0, 100.0), lambda: self._fence(node))

    def protocol_changes(self, node: Node) -> None:
        """An upgrade to another protocol, node by node."""
        self._upgrade(node, self.c.protocol + 1)
        self._later(self.c.draw(5.0, 60.0), self._upgrade_all)

    def _upgrade_all(self) -> None:
        self.c.protocol = max(n.protocol for n in self.c.nodes.values())
        for node in self.c.nodes.values():
            self._later(self.c.draw(0.0, 20.0), lambda n=node: self._upgrade(n, self.c.protocol))

    def _upgrade(self, node: Node, protocol: int) -> None:
        if node.protocol != protocol:
            node.protocol = protocol
            if node.daemon_up:
                node.end_daemon()
                self._later(self.c.draw(0.3, 3.0), lambda: self.daemon(node))

    # the way to the store, and the store

    def cut(self, node: Node) -> None:
        node.cut_until = max(node.cut_until, self.c.now + self.c.random.choice([0.5, 3.0, 12.0, 40.0]))
        node.broken = True

    def deaf(self, node: Node) -> None:
        node.deaf_until = self.c.now + self.c.random.choice([1.0, 6.0, 20.0])

    def late_watch(self, _: Node) -> None:
        self.c.slow = self.c.random.choice([0.3, 0.9])
        self._later(20.0, lambda: setattr(self.c, "slow", 0.0))

    def lease_lapses(self, node: Node) -> None:
        if self.c.store.up:
            self.c.store.expire(node.name)
            node.lease_until = -1.0
            self.c.published()

    def store_down(self, _: Node) -> None:
        self._down(self.c.random.choice([1.0, 6.0, 12.0, 30.0]), lambda: None)

    def store_emptied(self, _: Node) -> None:
        self._down(self.c.draw(1.0, 8.0), self._wiped)

    def store_copied(self, _: Node) -> None:
        self.copy = self.c.store.backup()

    def store_restored(self, _: Node) -> None:
        if self.copy is not None:
            copy = self.copy
            self._down(self.c.draw(1.0, 8.0), lambda: self._restored(copy))

    # operators

    def operator_restarts(self, node: Node) -> None:
        if node.daemon_up:
            self.c.meddled = True
            node.restart(self.c.group())

    def operator_stops_node(self, node: Node) -> None:
        self._says(node, node.name, run=False)
        self._later(self.c.draw(5.0, 60.0), lambda: self._says(node, node.name, run=True))

    def operator_stops_group(self, node: Node) -> None:
        group = self.c.group()
        self._says(node, group, run=False)
        self._later(self.c.draw(5.0, 60.0), lambda: self._says(node, group, run=True))

    def operator_pauses(self, node: Node) -> None:
        self._says(node, "all", paused=True)
        self._later(self.c.draw(5.0, 60.0), lambda: self._says(node, "all", paused=False))

    def node_leaves_the_file(self, node: Node) -> None:
        """The file loses a node whose daemon is away and whose rank lives on; an operator restarts the rest."""
        if not node.host_up or len(self.c.names) < 3 or self.c.left:
            return
        self.c.left = node.name
        node.end_daemon()
        names = tuple(n for n in self.c.names if n != node.name)
        for other in self.c.nodes.values():
            if other is not node and other.daemon_up:
                other.world.update_group(GROUP, nodes=names, digest="without")
                other.keep()
        self.operator_restarts(next(n for n in self.c.nodes.values() if n is not node))
        self._later(self.c.draw(20.0, 60.0), lambda: self.daemon(node))

    # afterwards

    def stop(self) -> None:
        """Faults stop, and operators want everything to run."""
        self._upgrade_all()
        for node in self.c.nodes.values():
            node.cut_until = node.deaf_until = -1.0
            node.sticks = False
            if node.host_up and not node.daemon_up:
                node.begin_daemon()
        self.c.slow, self.c.store.up = 0.0, True
        self.c.meddled = True
        for node in self.c.nodes.values():
            if node.daemon_up:
                for target, intent in {**node.world.board.intents, **node.world.intents}.items():
                    if intent.paused or not intent.run:
                        node.say(target, paused=False, run=True)

    def _later(self, seconds: float, what: Callable[[], object]) -> None:
        self.c.at(self.c.now + seconds, what)

    def _hurt(self, node: Node) -> None:
        for name, process in node.processes.items():
            if process.state in ("starting", "stuck", "serving"):
                self.c.trouble.setdefault((group_of(name), process.life), f"{node.name} went down")
        for group in self.c.groups:
            started = node.world.groups[group].started
            self.c.trouble.setdefault((group, started), f"{node.name} went down")

    def daemon(self, node: Node) -> None:
        """It starts, where there is a host for it."""
        if node.host_up and not node.daemon_up:
            node.begin_daemon()
            self.c.prove(node)

    def _host(self, node: Node) -> None:
        if not node.host_up:
            node.host_up, node.lost = True, False
            node.begin_daemon()

    def _fence(self, node: Node) -> None:
        if node.lost and self.c.store.up:
            self.c.store.fence(node.name)
            self.c.published()
        self._later(self.c.draw(10.0, 200.0), lambda: self._host(node))

    def _down(self, seconds: float, then: Callable[[], object]) -> None:
        if not self.c.store.up:
            return
        self.c.store.up = False
        for node in self.c.nodes.values():
            node.broken = True

        def back() -> None:
            then()
            self.c.store.up = True
            for node in self.c.nodes.values():
                # after an outage a lease has its full time again
                node.leased_until = self.c.now + trust.LEASE_S

        self._later(seconds, back)

    def _wiped(self) -> None:
        self.c.store.wipe()
        self.c.store.ring.clear()

    def _restored(self, copy: Backup) -> None:
        self.c.store.restore(copy)
        # leases that ran at the copy's time run out, and their owners put their keys again
        for name in self.c.names:
            self.c.store.expire(name)

    def _says(self, node: Node, target: str, **wish: bool) -> None:
        if node.daemon_up and node.host_up:
            self.c.meddled = self.c.meddled or not wish.get("run", True) or "paused" in wish
            node.say(target, **wish)


ALL = (
    ["rank_dies"] * 4
    + ["rank_hangs", "worker_dies", "worker_dies", "daemon_dies", "daemon_dies", "host_reboots", "host_is_lost"]
    + ["cut", "deaf", "late_watch", "lease_lapses", "store_down", "store_down", "store_emptied", "store_copied"]
    + ["node_leaves_the_file"] * 2
    + ["store_restored", "operator_restarts", "operator_stops_node", "operator_stops_group", "operator_pauses"]
    + ["protocol_changes"]
)
NO_OPERATOR = [k for k in ALL if not k.startswith("operator")]


def live(
    seed: int,
    size: int,
    mix: Sequence[str],
    count: int,
    *,
    blind: bool = False,
    early: bool = False,
    pair: bool = False,
) -> Story:
    """One seed from the first start to rest. Raises Broken. `early`: the faults begin with the first start."""
    cluster = Cluster(size, seed, pair=pair)
    cluster.store.blind = blind
    fates = Fates(cluster, 20.0 if early else SPAN_S, mix)
    for node in cluster.nodes.values():
        node.host_up = True
        cluster.at(cluster.draw(0.0, 5.0), lambda n=node: fates.daemon(n))
    cluster.run(1.0 if early else FIRST_S)
    fates.begin(count)
    # what a fault brings with it, such as the return of a host, comes within the second half
    cluster.run(cluster.now + 2 * SPAN_S)
    fates.stop()
    ends = dict.fromkeys((*cluster.groups, CACHE), "")
    deadline = cluster.now + SETTLED_S
    while cluster.now < deadline and not all(ends.values()):
        cluster.run(cluster.now + CHECK_S)
        ends = {group: cluster.ends(group) for group in ends}
    for group, end in ends.items():
        if not end:
            record = cluster.store.board.records.get(group)
            phases = {n: f"{m.phase.value}@{m.n}" for n, m in cluster.store.board.phases(group).items()}
            cluster.broken(f"G: {group} does not come to rest: {record}, {phases}")
    return Story(cluster, ends)
