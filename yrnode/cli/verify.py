"""`yrnode verify`: do the ranks of this node serve, and what did the external cache do?"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from typing import TYPE_CHECKING

from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from yrnode.checks.functional import Report


def arguments(parser: argparse.ArgumentParser) -> None:
    """`yrnode verify` takes only what every verb takes."""


def run(args: argparse.Namespace) -> int:
    """0 if every rank serves and an external cache that is configured was hit."""
    report = verify(args.config, args.node)
    print(json.dumps(report.as_dict()) if args.output == "json" else "\n".join(text(report)))
    return 0 if report.good else 1


def verify(config: str | None, node: str | None) -> Report:
    from yrnode.checks import functional
    from yrnode.components import node as components
    from yrnode.components.vllm import target
    from yrnode.config.load import load
    from yrnode.config.node import this_node

    cluster = load(config)
    specs = components.specs(components.host_of(cluster, this_node(cluster, node), os.environ))
    targets = [target(s) for s in specs if s.kind == "rank"]
    if not targets:
        raise UsageError("this node has no ranks; run verify on a node that has")
    return asyncio.run(functional.verify(targets))


def text(report: Report) -> list[str]:
    from yrnode.cli.table import table

    rows = [(r.name, r.health, r.completion, r.local_hits, r.external_hits, r.external_queries) for r in report.ranks]
    titles = ("rank", "health", "completion", "local hits", "external hits", "external queries")
    verdict = "good" if report.good else "NOT GOOD"
    how = "a long prompt of one rank was sent to the others; hits and queries are tokens"
    return [*table(titles, rows), "", f"{verdict}: {how}"]
