"""`yrnode check`: is the cluster file good?"""

from __future__ import annotations

import argparse
import json
import os
import sys

from yrnode.model.errors import UsageError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", action="store_true", help="print the file's JSON schema instead")


def run(args: argparse.Namespace) -> int:
    """0, or 2 with every fault on a line of its own."""
    from yrnode.config.load import find_file, load
    from yrnode.config.node import this_node

    if args.schema:
        from yrnode.config.cluster import Cluster

        print(json.dumps(Cluster.model_json_schema(), indent=2))
        return 0
    file = find_file(args.config)
    try:
        cluster = load(file)
        # a file may be checked anywhere: only a node that is named must be in it
        if args.node or os.environ.get("YRNODE_NODE"):
            this_node(cluster, args.node)
    except UsageError as e:
        if args.output == "json":
            print(json.dumps({"ok": False, "file": file, "errors": list(e.lines)}))
        for line in e.lines:
            print(line, file=sys.stderr)
        return 2
    nodes, groups = list(cluster.nodes), list(cluster.groups)
    if args.output == "json":
        found = {"ok": True, "file": file, "errors": [], "cluster": cluster.cluster, "nodes": nodes, "groups": groups}
        print(json.dumps(found))
    else:
        print(f"{file}: good: cluster {cluster.cluster}, nodes {', '.join(nodes)}, groups {', '.join(groups)}")
    return 0
