"""In what another node differs from this one, as their keys say."""

from __future__ import annotations

from yrnode.model.board import Peer


def differences(own: Peer, peer: Peer) -> list[str]:
    """A line each. What one of them does not say is no difference."""
    lines = [
        f"the cluster file's group {name}"
        for name in own.digests
        if peer.digests.get(name, own.digests[name]) != own.digests[name]
    ]
    if peer.version != own.version:
        lines.append(f"version {peer.version} instead of {own.version}")
    if peer.protocol != own.protocol:
        lines.append(f"protocol {peer.protocol} instead of {own.protocol}")
    facts = ((name, peer.facts.get(name, value), value) for name, value in own.facts.items())
    return lines + [f"{name} {theirs} instead of {value}" for name, theirs, value in facts if theirs != value]
