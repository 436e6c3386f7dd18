"""`yrnode check`: is the cluster file good, and would it start here?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from yrnode.cli.place import SOCKET
from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from yrnode.config.cluster import Cluster


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", action="store_true", help="print the file's JSON schema instead")


def run(args: argparse.Namespace) -> int:
    """0; 2 with every fault of the file on a line of its own; 1 with what stands in the way on this host."""
    from yrnode.config.files import find_file
    from yrnode.config.load import load

    if args.schema:
        from yrnode.config.cluster import Cluster

        print(json.dumps(Cluster.model_json_schema(), indent=2))
        return 0
    file = find_file(args.config)
    try:
        cluster = load(file)
        host, notes = _host_problems(cluster, args)
    except UsageError as e:
        if args.output == "json":
            print(json.dumps({"ok": False, "file": file, "errors": list(e.lines), "host": []}))
        for line in e.lines:
            print(line, file=sys.stderr)
        return 2
    nodes, groups = list(cluster.nodes), list(cluster.groups)
    if args.output == "json":
        found = {"ok": not host, "file": file, "errors": [], "host": host, "notes": notes}
        print(json.dumps({**found, "cluster": cluster.cluster, "nodes": nodes, "groups": groups}))
    else:
        print(f"{file}: good: cluster {cluster.cluster}, nodes {', '.join(nodes)}, groups {', '.join(groups)}")
        for line in notes:
            print(line)
    for line in host:
        print(line, file=sys.stderr)
    return 1 if host else 0


def _host_problems(cluster: Cluster, args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What would fail at the start here, and what is good to know. UsageError for what cannot be run."""
    from yrnode.components import node as components
    from yrnode.components import proxies, strays
    from yrnode.config.node import nic_of, this_node
    from yrnode.preflight import host as preflight
    from yrnode.store.connect import refuse_unusable

    refuse_unusable(cluster)
    try:
        node = this_node(cluster, args.node)
    except UsageError:
        # a file may be checked anywhere: only a node that is named must be in it
        if args.node or os.environ.get("YRNODE_NODE"):
            raise
        return [], []
    host = components.host_of(cluster, node, os.environ)
    specs = components.specs(host)
    notes = [*proxies.notes(host, specs), *strays.notes(host, specs)]
    if nic_of(host.address) is None:
        # another host's node: nothing here would be its
        return [], notes
    # a daemon that runs holds the ports itself
    return [] if (host.places.run_dir / SOCKET).exists() else preflight.problems(host, specs), notes
