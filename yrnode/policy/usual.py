"""How long a start usually takes here, and how far the present start, stop or clean-up is. Told to people; nothing is
decided by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from yrnode.model.group import Phase, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import State
from yrnode.policy import phase

KEPT = 5
"""Starts that the usual time is made of, the newest."""
LATE = 2.0
"""So many times the usual one is late,"""
LATE_S = 10.0
"""but not by less than this: what usually takes a second may take three."""


@dataclass(frozen=True)
class Progress:
    """`what`: start, stop or clean. Seconds; `usual_s` is None where that is not known, as of a stop: how long that
    takes is up to what is in flight, and bounded.
    `doing`: what the component's own output says."""

    what: str
    elapsed_s: float
    usual_s: float | None = None
    doing: str = ""

    @property
    def late(self) -> bool:
        return (
            self.usual_s is not None
            and self.elapsed_s >= LATE * self.usual_s
            and self.elapsed_s - self.usual_s >= LATE_S
        )


def usual(seconds: Sequence[float]) -> float | None:
    """Of the last starts: one that was held up for once does not count for much."""
    newest = sorted(seconds[-KEPT:])
    middle = len(newest) // 2
    return (newest[middle] + newest[~middle]) / 2 if newest else None


def of_component(c: ComponentView, s: Snapshot) -> Progress | None:
    """Of a start, a stop or a clean-up; None where nothing is under way, as with one that is clean and waits."""
    elapsed = max(0.0, s.now - c.since)
    match c.state:
        case State.STARTING:
            return Progress("start", elapsed, s.starts.components.get(c.name), s.starts.doing.get(c.name, ""))
        case State.STOPPING:
            return Progress("stop", elapsed)
        case State.CLEANING if not c.cleaned:
            return Progress("clean", elapsed)
    return None


def of_group(g: GroupView, s: Snapshot) -> Progress | None:
    """How far a life of the group is; None where it neither ends nor begins. A new daemon counts anew. Of a stop that
    no life follows: how far it is here."""
    elapsed = max(0.0, s.now - g.learned_at)
    if not g.wanted or g.record.stage is Stage.FAILED:
        here = (s.components[name] for name in g.members)
        began = min((c.since for c in here if c.state is State.STOPPING), default=None)
        return None if began is None else Progress("stop", max(0.0, s.now - began))
    if g.record.stage is Stage.STOP:
        return Progress("stop", elapsed)
    told = [m.phase for node, m in s.board.phases(g.name).items() if node != s.me and m.n == g.record.n]
    if Phase.STARTING in (phase.own(g, s).phase, *told):
        return Progress("start", elapsed, s.starts.groups.get(g.name))
    return None


def expected_s(names: Iterable[str], groups: Iterable[str], s: Snapshot) -> float | None:
    """From the start of these components, plane by plane, to all of them ready; a group's time is that of all its
    nodes. None where one of them has never been seen to start."""
    longest: dict[object, float] = {}
    whole = [s.groups[g] for g in groups if g in s.groups]
    for c in (s.components[n] for n in names if n in s.components):
        seconds = s.starts.components.get(c.name)
        if seconds is None:
            return None
        longest[c.plane] = max(longest.get(c.plane, 0.0), seconds)
    for g in whole:
        plane = next((s.components[m].plane for m in g.members if m in s.components), None)
        if plane is not None and g.name in s.starts.groups:
            longest[plane] = max(longest.get(plane, 0.0), s.starts.groups[g.name])
    return sum(longest.values()) if longest else None
