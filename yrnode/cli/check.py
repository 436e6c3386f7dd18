"""`yrnode check`: is the cluster file good, and would it start and serve here?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from yrnode.cli import place
from yrnode.cli.client import Client
from yrnode.cli.errors import NotGood
from yrnode.cli.table import plain
from yrnode.model.errors import UsageError
from yrnode.process.lock import held

if TYPE_CHECKING:
    from yrnode.components.host import Host
    from yrnode.config.cluster import Cluster
    from yrnode.preflight.finding import Finding

STATUS_S = 3.0
_ORDER = ("good", "not here", "warning", "blocker")
_WIDTH = max(map(len, _ORDER))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", action="store_true", help="print the file's JSON schema instead")


def run(args: argparse.Namespace) -> int:
    """0, also with warnings; 2 with every fault of the file on a line of its own; 1 with what stands in the way."""
    from yrnode.config.files import find_file
    from yrnode.config.load import load

    if args.schema:
        from yrnode.config.cluster import Cluster

        print(json.dumps(Cluster.model_json_schema(), indent=2))
        return 0
    file = find_file(args.config)
    try:
        cluster = load(file)
        found, notes = _look(cluster, args)
    except UsageError as e:
        if args.output == "json":
            print(json.dumps({"ok": False, "file": file, "errors": list(e.lines), "host": [], "checks": []}))
        for line in e.lines:
            print(line, file=sys.stderr)
        return 2
    blockers = [f.line for f in found if f.verdict == "blocker"]
    nodes, groups = list(cluster.nodes), list(cluster.groups)
    if args.output == "json":
        said = {"ok": not blockers, "file": file, "errors": [], "host": blockers, "notes": notes}
        checks = [
            {"name": f.name, "verdict": f.verdict.value, "found": f.found, "needed": f.needed, "cure": f.cure}
            for f in found
        ]
        print(json.dumps({**said, "cluster": cluster.cluster, "nodes": nodes, "groups": groups, "checks": checks}))
    else:
        print(f"{file}: good: cluster {cluster.cluster}, nodes {', '.join(nodes)}, groups {', '.join(groups)}")
        for line in notes:
            print(line)
        for line in rendered(found):
            print(line)
        sys.stdout.flush()
    for line in blockers:
        print(plain(line), file=sys.stderr)
    return 1 if blockers else 0


def rendered(found: list[Finding]) -> list[str]:
    """What is good first and what blocks last, where a person looks; each with its need and its cure."""
    lines = []
    for f in sorted(found, key=lambda f: _ORDER.index(f.verdict.value)):
        words = f"{f.verdict.value:<{_WIDTH}}  {f.name}: {plain(f.found)}"
        parts = [f"{key}: {plain(text)}" for key, text in (("needed", f.needed), ("cure", f.cure)) if text]
        if f.verdict in ("good", "not here"):
            lines.append(f"{words} ({', '.join(parts)})" if parts else words)
        else:
            lines += [words, *(f"{'':<{_WIDTH}}    {part}" for part in parts)]
    return lines


def _look(cluster: Cluster, args: argparse.Namespace) -> tuple[list[Finding], list[str]]:
    """What the checks found here, and what is good to know. UsageError for what cannot be run."""
    from yrnode.components import node as components
    from yrnode.components import proxies, strays
    from yrnode.config.node import nic_of, this_node
    from yrnode.preflight import host as preflight
    from yrnode.preflight.finding import Look
    from yrnode.preflight.places import runs
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
    if not _held(host):
        return preflight.everything(Look(host, specs, runs(host))), notes
    # it knows the other nodes
    return preflight.everything(Look(host, specs, True), lambda _: _of_daemon(cluster, args)), notes


def _held(host: Host) -> bool:
    try:
        return held(host.places.state_dir)
    except OSError:
        # not ours to open: whose socket is there, runs or has run
        return (host.places.run_dir / place.SOCKET).exists()


def _of_daemon(cluster: Cluster, args: argparse.Namespace) -> list[Finding]:
    """What the daemon that runs knows of the other nodes."""
    from yrnode.preflight import nodes
    from yrnode.preflight.finding import not_here

    if len(cluster.nodes) == 1:
        return [not_here(nodes.NAME, "this one is alone")]
    try:
        status = Client(place.find(args), STATUS_S).read("/status")
    except (NotGood, UsageError) as e:
        return [not_here(nodes.NAME, f"the yrnode that runs here does not tell: {e}")]
    return nodes.judge(nodes.of_status(status.get("peers", {})), cluster.nodes)
