"""What differs between nodes: versions, models, seeds, the cluster file, and how far their clocks are apart.

A daemon that runs here knows it; else the keys that nodes have in the store are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from yrnode import __version__
from yrnode.components import datasystem
from yrnode.config.cluster import Cluster
from yrnode.config.digest import cache_digest, group_digest
from yrnode.model.board import Peer
from yrnode.policy.differs import differences
from yrnode.preflight import agreed
from yrnode.preflight.finding import Finding, Look, good, not_here, warning
from yrnode.store import codec
from yrnode.store.connect import connect
from yrnode.store.errors import StoreError
from yrnode.store.keys import ClusterKeys
from yrnode.store.transport import within

NAME, CLOCKS = "other nodes", "clocks of other nodes"
STORE_S = 2.0
LARGEST_OFFSET_S = 1.0


@dataclass(frozen=True)
class Other:
    """`differs`: lines; `offset_s`: its clock less this one's, None where nobody has seen it."""

    differs: Sequence[str] = ()
    offset_s: float | None = None


def look(at: Look) -> list[Finding]:
    """Without a daemon: by the store, which may be away."""
    cluster, node = at.host.cluster, at.host.node
    if len(cluster.nodes) == 1:
        return [not_here(NAME, "this one is alone")]
    try:
        there = asyncio.run(within(_read(cluster), STORE_S + 1.0))
    except (StoreError, OSError, TimeoutError, asyncio.TimeoutError) as e:
        return [not_here(NAME, f"the store does not answer: {str(e) or 'out of time'}")]
    there.pop(node, None)
    if not there:
        return [not_here(NAME, "none of them has its key in the store")]
    mine = own(cluster, agreed.facts(at))
    return judge({name: Other(differences(mine, peer)) for name, peer in there.items()}, cluster.nodes)


async def _read(cluster: Cluster) -> dict[str, Peer]:
    keys, store = ClusterKeys(cluster.cluster), connect(cluster, timeout_s=STORE_S)
    try:
        listing = await store.list(keys.nodes)
    finally:
        await store.close()
    read = {kv.key.removeprefix(keys.nodes): codec.read(codec.peer_of, kv.value) for kv in listing.items}
    return {name: peer for name, peer in read.items() if peer is not None}


def own(cluster: Cluster, facts: Mapping[str, str]) -> Peer:
    """This node's key as its daemon would write it."""
    digests = {name: group_digest(cluster, name) for name in cluster.groups}
    return Peer("", version=__version__, digests={**digests, datasystem.GROUP: cache_digest(cluster)}, facts=facts)


def of_status(peers: Mapping[str, Mapping[str, object]]) -> dict[str, Other]:
    """From `peers` of the daemon's status, those that are there."""
    found = {}
    for name, peer in peers.items():
        differs, offset = peer.get("differs"), peer.get("clock_offset_s")
        if peer.get("up"):
            lines = [str(line) for line in differs] if isinstance(differs, list) else []
            found[name] = Other(lines, float(offset) if isinstance(offset, int | float) else None)
    return found


def judge(others: Mapping[str, Other], nodes: Sequence[str] | Mapping[str, object]) -> list[Finding]:
    """`others`: the nodes that are there; `nodes`: all of the cluster file."""
    absent = len(nodes) - 1 - len(others)
    seen = f"{len(others)} of {len(nodes) - 1} seen" + (f", {absent} not there yet" if absent > 0 else "")
    found = [
        warning(NAME, f"{name} has {line}", "the same on all nodes", "make it the same, then restart that yrnode")
        for name, other in others.items()
        for line in other.differs
    ]
    return [*(found or [good(NAME, f"{seen}, alike")]), *_clocks(others)]


def _clocks(others: Mapping[str, Other]) -> list[Finding]:
    offsets = {name: other.offset_s for name, other in others.items() if other.offset_s is not None}
    if not offsets:
        return [not_here(CLOCKS, "only a yrnode that runs here compares them, some seconds after its start")]
    far = {name: offset for name, offset in offsets.items() if abs(offset) > LARGEST_OFFSET_S}
    if not far:
        return [good(CLOCKS, f"at most {max(map(abs, offsets.values())):.2f} s apart")]
    words = ", ".join(f"{name} is {abs(s):.1f} s {'ahead' if s > 0 else 'behind'}" for name, s in far.items())
    cure = "let chronyd, ntpd or systemd-timesyncd keep all of them in time"
    return [warning(CLOCKS, words, f"at most {LARGEST_OFFSET_S:.0f} s", cure)]
