"""`yrnode render`: what would be run, to the letter, with secrets covered."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yrnode.model.secrets import cover_argv, cover_env, cover_text
from yrnode.model.spec import NIC, RPC_PORT

if TYPE_CHECKING:
    from yrnode.model.spec import ComponentSpec

FOUND = {RPC_PORT: "<found on {node}>", NIC: "<found on {node}>"}
"""What only the node itself knows, when it starts."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="every node of the file")


def run(args: argparse.Namespace) -> int:
    from yrnode.components import node as components
    from yrnode.config.load import load
    from yrnode.config.node import this_node

    cluster = load(args.config)
    nodes = list(cluster.nodes) if args.all else [this_node(cluster, args.node)]
    scripts = [script for script in cluster.env_from if script.exists()]
    for script in cluster.env_from:
        if script not in scripts:
            print(f"env_from: {script} is not on this host: what it sets is not shown", file=sys.stderr)
    hosts = [components.host_of(cluster, node, os.environ, scripts) for node in nodes]
    rendered = [as_dict(host.node, components.specs(host)) for host in hosts]
    if args.output == "json":
        print(json.dumps(rendered if args.all else rendered[0]))
    else:
        print("\n".join(line for node in rendered for line in text(node)))
    return 0


def as_dict(node: str, specs: Sequence[ComponentSpec]) -> dict[str, Any]:
    """`after`: what must be ready before."""
    return {
        "node": node,
        "components": [
            {
                "name": s.name,
                "plane": s.plane.value,
                "argv": [_found(w, node) for w in cover_argv(s.argv)],
                "env": {name: _found(value, node) for name, value in cover_env(s.env).items()},
                "unset": list(s.unset),
                "files": {str(path): cover_text(content) for path, content in s.files.items()},
                "after": [o.name for o in specs if o.plane.order < s.plane.order],
            }
            for s in specs
        ],
    }


def _found(word: str, node: str) -> str:
    return FOUND.get(word, "").format(node=node) or word


def text(rendered: Mapping[str, Any]) -> list[str]:
    """Lines that a shell would take."""
    lines = []
    for c in rendered["components"]:
        after = f", after {', '.join(c['after'])}" if c["after"] else ""
        lines.append(f"# {rendered['node']}: {c['name']} ({c['plane']}{after})")
        lines += [f"# file {path}: {content.strip()}" for path, content in c["files"].items()]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(c["env"].items())]
        lines += [shlex.join(c["argv"]), ""]
    return lines
