"""`yrnode verify`: do the router and the ranks of this node serve, and what did the external cache do?"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from yrnode.checks.functional import Finding, Report


def arguments(parser: argparse.ArgumentParser) -> None:
    """`yrnode verify` takes only what every verb takes."""


def run(args: argparse.Namespace) -> int:
    """0 if the router and every rank serve, and an external cache that is configured was hit."""
    report = verify(args.config, args.node)
    print(json.dumps(report.as_dict()) if args.output == "json" else "\n".join(text(report)))
    return 0 if report.good else 1


def verify(config: str | None, node: str | None) -> Report:
    """What was found, with secrets covered: servers say what they like."""
    from yrnode.checks import functional
    from yrnode.components import node as components
    from yrnode.components.known import cover_of
    from yrnode.components.router import asked
    from yrnode.components.vllm import target
    from yrnode.config.files import find_file
    from yrnode.config.layout import router_url
    from yrnode.config.load import load
    from yrnode.config.node import this_node

    cluster = load(config)
    host = components.host_of(cluster, this_node(cluster, node), os.environ)
    specs = components.specs(host)
    targets = [target(s) for s in specs if s.kind == "rank"]
    url = router_url(cluster)
    if not targets and not url:
        raise UsageError("this node has no ranks; run verify on a node that has")
    router = functional.RouterTarget(**asked(host, url)) if url else None
    report, cover = asyncio.run(functional.verify(targets, router)), cover_of(cluster, find_file(config), specs)
    ranks = (replace(r, health=cover(r.health), completion=cover(r.completion)) for r in report.ranks)
    return replace(report, ranks=tuple(ranks), router=cover(report.router))


def text(report: Report) -> list[str]:
    from yrnode.checks.functional import NOT_CONFIGURED
    from yrnode.cli.table import table

    rows = [
        (r.name, r.health, r.completion, int(r.counts.local_hits), r.external_hits, r.external_queries, *_shares(r))
        for r in report.ranks
    ]
    titles = (
        "rank",
        "health",
        "completion",
        "local hits",
        "external hits",
        "external queries",
        "local",
        "ext",
        "eff",
    )
    verdict = "good" if report.good else "NOT GOOD"
    how = "a long prompt of one rank was sent to the others; hits and queries are tokens"
    through = [f"a chat through the router: {report.router}"] if report.router != NOT_CONFIGURED else []
    return [*(table(titles, rows) if rows else []), *through, "", f"{verdict}: {how}" if rows else verdict]


def _shares(finding: Finding) -> list[str]:
    counts = finding.counts
    return [f"{100 * x:.0f}%" if x is not None else "-" for x in (counts.local, counts.external, counts.effective)]
