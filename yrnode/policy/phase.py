"""How far this node's part of a group has come, as it tells the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yrnode.model.board import Board
from yrnode.model.group import GroupKind, Member, Phase, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import WITH_PROCESS, State
from yrnode.policy import component
from yrnode.policy.life import over


def own(g: GroupView, s: Snapshot) -> Member:
    """What this node says. `clean` only when every member is proven gone, cleaned, and what it needs is ready."""
    members = [s.components[name] for name in g.members]
    phase, evidence = _phase(g, members, s)
    return Member(g.record.n, phase, g.digest, evidence)


def _phase(g: GroupView, members: list[ComponentView], s: Snapshot) -> tuple[Phase, str]:
    running = [c for c in members if c.state in WITH_PROCESS]
    if any(over(c, g) or c.state is State.STOPPING for c in running) and g.kind is GroupKind.SERVING:
        return Phase.STOPPING, ""
    if g.kind is GroupKind.CACHE and g.record.stage is not Stage.GO and running:
        return Phase.STOPPING, ""
    wanted = [c for c in members if component.wanted(c, s)]
    if not wanted:
        return (Phase.STOPPING, "") if running else (Phase.HELD, _why_held(members, g))
    if g.record.stage is Stage.FAILED:
        return Phase.FAILED, ""
    blocked = next((c for c in wanted if c.blocked is not None and c.state is not State.STOPPED), None)
    if blocked is not None:
        return Phase.FAILED, f"{blocked.name}: {blocked.blocked}"
    if g.record.stage is Stage.GO:
        ready = all(c.state in (State.READY, State.UNHEALTHY) for c in wanted)
        return (Phase.READY if ready else Phase.STARTING), ""
    lacking = [f"{c.name}: {', '.join(component.missing(c, s))}" for c in wanted if component.missing(c, s)]
    clean = all(c.state is State.CLEANING and c.cleaned for c in wanted)
    return (Phase.CLEAN, "") if clean and not lacking else (Phase.STOPPING, "; ".join(lacking))


def ready_since(g: GroupView, board: Board, now: float) -> float | None:
    """Since when every node's part has been ready for the record's life. A node that is absent says nothing."""
    told, n, complete = board.phases(g.name), g.record.n, True
    for node in g.nodes:
        member = told.get(node)
        if member is None:
            complete = False
        elif member.n != n or member.phase is not Phase.READY:
            return None
    return now if g.ready_since is None and complete else g.ready_since


def unsure(g: GroupView, board: Board, fresh: bool, me: str) -> str:
    """Which other node is not known to serve the group's life with this one; empty when all of them are."""
    others = [n for n in g.nodes if n != me]
    if others and not fresh:
        return "what the other nodes do is not known"
    return unknown_to_serve(others, board.phases(g.name), g.record.n)


def unknown_to_serve(nodes: Iterable[str], told: Mapping[str, Member], n: int) -> str:
    """Which of these nodes have not said that their part serves the life `n`, in words; empty when all have."""
    late = [node for node in nodes if node not in told or (told[node].n, told[node].phase) != (n, Phase.READY)]
    return f"{', '.join(late)} not known to serve" if late else ""


def _why_held(members: list[ComponentView], g: GroupView) -> str:
    why = g.unwanted or next((c.unwanted for c in members if c.unwanted is not None), None)
    return str(why) if why is not None else ""
