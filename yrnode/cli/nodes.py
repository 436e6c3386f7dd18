"""What a status says of many nodes, in few words: a line stays short with hundreds of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yrnode.cli.table import ago

FEW = 8
"""So many are named one by one, of more the first ones and how many more there are. The JSON has them all."""

PEERS = ("node", "is", "since", "yrnode", "differs")
"""Titles of `peers`."""


def few(names: Sequence[str], between: str = ", ") -> str:
    """The names, FEW of them at the most."""
    if len(names) <= FEW:
        return between.join(names)
    return between.join(names[: FEW - 1]) + f"{between}and {len(names) - FEW + 1} more"


def phases(by_node: dict[str, str]) -> str:
    """How far the nodes are: of many nodes, who differs from the most."""
    if len(by_node) == 1:
        return next(iter(by_node.values()))
    nodes: dict[str, list[str]] = {}
    for node, phase in by_node.items():
        nodes.setdefault(phase, []).append(node)
    most = max(nodes, key=lambda p: len(nodes[p]), default="")
    return ", ".join(f"{len(n)} {p}" + ("" if p == most else f" ({few(n, ' ')})") for p, n in nodes.items())


def peer_word(p: dict[str, Any]) -> str:
    if p["fenced"]:
        return "fenced"
    if p["up"] is None:
        return "unknown"
    return "up" if p["up"] else "absent"


def peers(status: dict[str, Any]) -> list[tuple[str, str, str | None, str | None, str]]:
    """A row for each other node; where more than FEW are alike, one for all of these. No rows without other nodes."""
    alike: dict[tuple[str, str | None, str], list[str]] = {}
    for name, p in status["peers"].items():
        alike.setdefault((peer_word(p), p["version"], "; ".join(map(str, p["differs"]))), []).append(name)
    found = []
    for (word, version, differs), names in alike.items():
        away = {n: status["peers"][n]["absent_since"] for n in names}
        lines = [(n, [n]) for n in names] if len(names) <= FEW else [(f"{names[0]} and {len(names) - 1} more", names)]
        for title, of in lines:
            # of several, how long the first of them has been away
            since = min((away[n] for n in of if away[n]), default=None)
            found.append((title, word, ago(since, status["at"]) if since else None, version, differs))
    return found
