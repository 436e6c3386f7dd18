"""Where this node's daemon keeps its files and listens, from the cluster file."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from yrnode.model.errors import UsageError

SOCKET = "yrnode.sock"
"""The control socket's name in run_dir."""


@dataclass(frozen=True)
class Place:
    """`file` is the cluster file, as a person would name it."""

    file: str
    cluster: str
    node: str
    run_dir: Path
    state_dir: Path
    log_dir: Path
    host: str
    port: int

    @property
    def socket(self) -> Path:
        return self.run_dir / SOCKET


def find(args: argparse.Namespace, *, runs: bool = True, tell: bool = True) -> Place:
    """The place of the node that `--config` and `--node` mean. UsageError where they mean none.

    A file with faults still tells where the daemon is: one that runs must be seen while the file is being edited.
    Without `runs` it need not run for that; with `tell` the fault is said.
    """
    from yrnode.config.files import find_file
    from yrnode.config.layout import api_of, places
    from yrnode.config.load import load
    from yrnode.config.node import this_node

    file = find_file(args.config)
    try:
        cluster = load(file)
    except UsageError as e:
        place = _from_faulty(file, args.node)
        if place is None or (runs and not place.socket.exists()):
            raise
        if tell:
            whom = "asking the daemon that runs" if runs else "going by its places"
            print(f"{e.lines[0]}; {whom}, see yrnode check", file=sys.stderr)
        return place
    node = this_node(cluster, args.node)
    own, api = places(cluster, node), api_of(cluster, node)
    return Place(file, cluster.cluster, node, own.run_dir, own.state_dir, own.log_dir, api.host, api.port)


def quick(args: argparse.Namespace) -> Place | None:
    """The place of this host's daemon by a look at the file's text, its port left out; None where that cannot tell,
    or no socket is there though there is a file."""
    import os

    from yrnode.config.files import find_file, quick_run_dir

    file = find_file(args.config)
    run_dir = None if args.node or os.environ.get("YRNODE_NODE") else quick_run_dir(args.config, os.environ)
    if run_dir is None or (os.path.exists(file) and not (run_dir / SOCKET).exists()):
        return None
    return Place(file, "", "", run_dir, run_dir, run_dir, "", 0)


def _from_faulty(file: str, given: str | None) -> Place | None:
    import os

    from yrnode.config.cluster import Cluster
    from yrnode.config.yaml import parse

    try:
        data = parse(Path(file).read_bytes(), file).data
    except (OSError, UsageError):
        return None
    nodes = data.get("nodes")
    names = list(nodes) if isinstance(nodes, dict) else []
    node = given or os.environ.get("YRNODE_NODE") or (str(names[0]) if len(names) == 1 else "")
    own = nodes.get(node) if isinstance(nodes, dict) else None

    def value(key: str) -> Path:
        for source in (own, data):
            if isinstance(source, dict) and isinstance(source.get(key), str):
                return Path(file).absolute().parent / str(source[key])
        return Path(Cluster.model_fields[key].default)

    # port 0: TCP is not tried, since the file's word for it is not checked
    cluster = data.get("cluster")
    name = cluster if isinstance(cluster, str) else ""
    return Place(file, name, node, value("run_dir"), value("state_dir"), value("log_dir"), "", 0)
