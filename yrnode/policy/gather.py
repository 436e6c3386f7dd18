"""Whether all that must be clean before a group's go is clean, and what is waited for."""

from __future__ import annotations

from collections.abc import Iterator

from yrnode.model.board import Board
from yrnode.model.cause import Cause
from yrnode.model.group import GroupKind, Member, Phase
from yrnode.model.snapshot import GroupView, Snapshot
from yrnode.model.state import State
from yrnode.policy import component, protocol

_RESTING = frozenset({Phase.CLEAN, Phase.HELD, Phase.FAILED})


def lacking(g: GroupView, s: Snapshot) -> Iterator[str]:
    """What go waits for, one line each. None: every node of the cluster file's group is clean for this life, every
    other node that may still run an earlier one is clean or fenced, and what the members need is ready."""
    yield from nodes(g, s)
    if g.kind is GroupKind.CACHE:
        told = s.board.phases(g.name)
        resting = all(told[n].phase in _RESTING for n in g.nodes if n in told)
        if resting and not any(told[n].phase is Phase.CLEAN for n in g.nodes if n in told):
            yield "a worker that is wanted"
    else:
        yield from dict.fromkeys(x for m in g.members for x in component.missing(s.components[m], s))
    if not s.board.store_id:
        yield "the store's identity"


def here(g: GroupView, s: Snapshot) -> str:
    """What go waits for on this very node; empty where that is nothing."""
    return _node(g, s.me, s.board.phases(g.name).get(s.me), s) if s.me in g.nodes else ""


def nodes(g: GroupView, s: Snapshot, *, but: str = "") -> Iterator[str]:
    """The nodes that go waits for, one line each, `but` for one of the cluster file's."""
    yield from (line for node, line in awaited(g, s) if node != but or node not in g.nodes)


def awaited(g: GroupView, s: Snapshot) -> Iterator[tuple[str, str]]:
    """The same: each node, and its line."""
    told = s.board.phases(g.name)
    for node, number in protocol.strangers(s).items():
        yield node, f"{node} (protocol {number}, here {s.protocol})"
    for node in g.nodes:
        if line := _node(g, node, told.get(node), s):
            yield node, line
    in_file = frozenset(g.nodes)
    for node in g.record.members:
        if node in in_file or node in s.board.fences:
            continue
        if line := _node(g, node, told.get(node), s, same=False):
            yield node, f"{line}; it was a member: yrnode fence {node} --confirm-off, when it is off"


def _node(g: GroupView, node: str, member: Member | None, s: Snapshot, *, same: bool = True) -> str:
    """Why a node is not clean for the record's life; empty when it is. `same`: it is to start from the same file."""
    if member is None:
        # a fence stands for a worker that is not there; a rank that is not there is missed
        return "" if g.kind is GroupKind.CACHE and node in s.board.fences else f"{node} (absent)"
    if member.n != g.record.n:
        return f"{node} (has not told of life {g.record.n})"
    if g.kind is GroupKind.CACHE and member.phase in _RESTING:
        return ""
    if member.phase is not Phase.CLEAN:
        return f"{node} ({member.phase.value}{': ' + member.evidence if member.evidence else ''})"
    return "" if member.digest == g.digest or not same else f"{node} (its cluster file differs)"


def blocked(g: GroupView, s: Snapshot) -> Cause | None:
    """What is in the way of this node's own members, for good."""
    if g.kind is GroupKind.CACHE:
        return None
    for name in g.members:
        c = s.components[name]
        if c.state is State.CLEANING and c.blocked is not None:
            return Cause(c.blocked.reason, c.blocked.text, c.blocked.evidence, name)
    return None


def fences_used(g: GroupView, board: Board) -> dict[str, int]:
    """The fences that a go relies on, each with the revision of its last put."""
    relied = [n for n in {*g.nodes, *g.record.members} if n in board.fences]
    return {n: board.fences[n].revision for n in relied}
