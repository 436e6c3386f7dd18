"""What cannot be decided or begun now because the shared keys cannot be read, trusted or written: for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from yrnode.model.group import GroupKind, GroupMove, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import State
from yrnode.policy import component, group, intents, protocol, trust

_WAITING = frozenset({State.STOPPED, State.BACKOFF, State.CLEANING})


@dataclass(frozen=True)
class Frozen:
    """`why`, since when (monotonic seconds, None where nobody knows), and what it means, a line each."""

    why: str
    since: float | None
    lines: tuple[str, ...]


def frozen(s: Snapshot) -> Frozen | None:
    """None when this node can decide whatever there is to decide."""
    found = _why(s)
    return None if found is None else Frozen(*found, tuple(_lines(s)))


def _why(s: Snapshot) -> tuple[str, float | None] | None:
    if not s.store_available:
        return "the store does not answer", s.store_since
    if not s.fresh and not s.board.store_id:
        return "the shared keys have not been read yet", s.store_since
    if not s.fresh and s.now - s.proven_at >= trust.PROVEN_S:
        return "the watch of the shared keys has brought nothing that proves it complete", s.proven_at
    if not s.fresh:
        return "this node has no lease in the store", None
    if not s.settled:
        left = max(0.0, s.settles_at - s.now)
        why = f"the store has lost data: for {left:.0f} s more every node may put back what it knows"
        return why, s.settles_at - trust.SETTLE_S
    told = protocol.told(s)
    return (told, None) if told else None


def _lines(s: Snapshot) -> Iterator[str]:
    waits = {g.name: line for g in s.groups.values() if (line := _group(g, s))}
    yield from waits.values()
    idle = [g.name for g in s.groups.values() if g.name not in waits and _lives(g, s)]
    if idle:
        yield f"a restart of {', '.join(idle)} as a whole would wait; what dies is stopped and cleaned here meanwhile"
    yield from (line for c in s.components.values() if (line := _component(c, s)))
    unsaid = intents.unsaid(s)
    if unsaid:
        yield f"what was said here about {', '.join(unsaid)} is not known to the other nodes"
    if not s.fresh:
        yield "a pause, a stop or a restart that is said on another node is not heard here"
    yield "what serves goes on serving, and the checks of this node go on"


def _group(g: GroupView, s: Snapshot) -> str:
    wish = group.wish(g, s)
    if wish is not None and wish.move is GroupMove.BUMP:
        return f"{g.name}: its restart waits, what is dead is stopped and cleaned here: {wish.cause}"
    if wish is not None and wish.move is GroupMove.FAIL:
        return f"{g.name}: to be given up, what is dead is stopped here: {wish.cause}"
    if g.record.stage is Stage.STOP and (g.wanted or g.kind is GroupKind.CACHE):
        return f"{g.name}: the start of life {g.record.n} waits"
    return ""


def _lives(g: GroupView, s: Snapshot) -> bool:
    return g.record.stage is Stage.GO and not intents.paused(g.name, s)


def _component(c: ComponentView, s: Snapshot) -> str:
    """A worker starts, and is restarted for what its checks say, only with the store; others start after it."""
    if c.spec.lives_with is None or not component.wanted(c, s) or intents.paused(c.name, s):
        return ""
    if c.state in _WAITING and c.blocked is None:
        return f"{c.name}: it waits for the store, without which it cannot start"
    if not s.store_available and c.state is State.UNHEALTHY and (found := component.complaint(c, s)):
        return f"{c.name}: it is not restarted before the store answers: {found}"
    return ""
