"""Nodes that speak another protocol number, as in the middle of an upgrade that changes it.

They may mean something else by the same keys. So while one of them is there nobody writes what all share: no record,
no intent, no fence. What serves goes on, what is dead is ended here, and its bump is kept until all speak the same.
"""

from __future__ import annotations

from yrnode.model.snapshot import Snapshot


def strangers(s: Snapshot) -> dict[str, int]:
    """The nodes that are there and speak another number than this one, with their numbers."""
    return {n: peer.protocol for n, peer in s.board.nodes.items() if n != s.me and peer.protocol != s.protocol}


def told(s: Snapshot) -> str:
    """In words, empty when all speak the same."""
    found = strangers(s)
    if not found:
        return ""
    others = ", ".join(f"{node} protocol {number}" for node, number in found.items())
    return f"{others}, this node {s.protocol}: nothing that all share is changed until all speak the same"
