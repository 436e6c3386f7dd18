"""etcd's data directory is new or this node's own, and no other etcd uses it."""

from __future__ import annotations

from yrnode.components.host import Host
from yrnode.model.spec import ComponentSpec
from yrnode.residue import datadir, orphans


def problems(host: Host, specs: list[ComponentSpec]) -> list[str]:
    found = []
    for spec in specs:
        if spec.data_dir is None:
            continue
        why = datadir.why_foreign(spec.data_dir, host.cluster.cluster, host.node)
        why = why or datadir.why_unwritable(spec.data_dir)
        mark = orphans.mark_of(f"{host.cluster.cluster}/{host.node}", spec.name)
        if not why and not orphans.find(mark, host.places.state_dir):
            why = datadir.why_locked(spec.data_dir)
        if why:
            found.append(f"etcd.data_dir: {why}")
    return found
