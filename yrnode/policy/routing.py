"""Who should be behind the router now, and what is to be told to it.

A server comes in when its whole group is ready for the life that its record says, which every rank has proven by a
completion. It goes out for what is known against it, never for what is not known: while the store is away, or a node
is absent, the router keeps what it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Phase, Stage
from yrnode.model.routing import Drain, Judged, Route, RouteView, Standing
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import State
from yrnode.policy import component, intents, phase

SETTLE_S = 3.0
"""A server that somebody else has taken out comes back only after so long: its own node knows first that it stops."""
QUIET_LOOKS = 2
"""Looks in a row without a request that end a drain."""

_UP = (State.READY, State.UNHEALTHY)


@dataclass(frozen=True)
class Tell:
    """A change for the router: this server in, or out."""

    route: Route
    add: bool
    cause: Cause


@dataclass(frozen=True)
class Whole:
    """What holds for all servers of a group alike, in words, empty where nothing does. `against`: some node of it is
    to stop or finishes; `late`: some node is not known to serve the group's life."""

    against: str
    late: str


def judge_all(routes: Iterable[Route], s: Snapshot) -> dict[str, Judged]:
    """By URL. What a group's nodes say is looked at once for all of its servers."""
    wholes: dict[str, Whole] = {}
    found = {}
    for route in routes:
        if route.group not in wholes:
            wholes[route.group] = _whole(route, s)
        found[route.url] = judge(route, s, wholes[route.group])
    return found


def _whole(route: Route, s: Snapshot) -> Whole:
    record = _record(route.group, s)
    told = s.board.phases(route.group)
    late = phase.unknown_to_serve(route.nodes, told, record.n) if record is not None else ""
    return Whole(_against_group(route, s), late)


def judge(route: Route, s: Snapshot, whole: Whole | None = None) -> Judged:
    """Whether this server should get requests, and why. `whole`: of its group, where it has been looked at."""
    whole = whole or _whole(route, s)
    known = _against(route, s, whole)
    if known:
        return Judged(Standing.OUT, known)
    if not s.fresh or not s.settled:
        return Judged(
            Standing.UNKNOWN, "the store does not answer" if not s.fresh else "the store has lost something"
        )
    record = _record(route.group, s)
    if record is None:
        return Judged(Standing.OUT, f"group {route.group} has not lived yet")
    if record.stage is not Stage.GO:
        return Judged(Standing.OUT, f"group {route.group} is to {_STAGES[record.stage]}, generation {record.n}")
    if route.node == s.me and s.components[route.rank].generation != record.n:
        return Judged(Standing.OUT, f"its group has come to generation {record.n}")
    return _by_members(route, record, s, whole)


_STAGES = {Stage.STOP: "stop and clean", Stage.FAILED: "stay down: it is given up"}


def _record(group: str, s: Snapshot) -> GroupRecord | None:
    """The newest that is known: what this node keeps, or for a group that has no rank here the store's."""
    if group in s.groups:
        return s.groups[group].record
    stored = s.board.records.get(group)
    return stored.record if stored is not None else None


def _against(route: Route, s: Snapshot, whole: Whole) -> str:
    """What is known without the store."""
    if known := _to_stop(route.group, route.node, s) or whole.against:
        return known
    own = s.components.get(route.rank) if route.node == s.me else None
    return _own_words(own, s) if own is not None else ""


def _to_stop(group: str, node: str, s: Snapshot) -> str:
    unwanted = intents.unwanted(group, node, s.intents)
    return f"{node} is to stop: {unwanted.text}" if unwanted is not None else ""


def _against_group(route: Route, s: Snapshot) -> str:
    for node in route.nodes:
        if known := _to_stop(route.group, node, s):
            return known
    for node, intent in intents.draining(route.nodes, s.intents).items():
        # its group stops as a whole, so all of it finishes what it has
        return f"{node} is drained: {intent.why}"
    return ""


def _own_words(c: ComponentView, s: Snapshot) -> str:
    if c.death is not None:
        return str(c.death)
    if c.state not in _UP:
        why = (c.leaving or c.cause) if c.state is not State.STARTING else None
        return f"it is {c.state.value}" + (f": {why}" if why is not None else "")
    return "" if component.wanted(c, s) and c.restart is None else "it is to stop"


def _by_members(route: Route, record: GroupRecord, s: Snapshot, whole: Whole) -> Judged:
    told = s.board.phases(route.group)
    mine = told.get(route.node)
    if mine is None:
        away = s.absent.get(route.node)
        if away is not None and route.group in away.dead:
            return Judged(Standing.OUT, f"{route.node} is gone, and nothing listens there")
        return Judged(Standing.UNKNOWN, f"{route.node} is absent")
    if (mine.n, mine.phase) != (record.n, Phase.READY):
        return Judged(Standing.OUT, f"{route.node} is {mine.phase.value}, generation {mine.n}")
    return (
        Judged(Standing.UNKNOWN, whole.late) if whole.late else Judged(Standing.IN, f"ready, generation {record.n}")
    )


def tell(members: Iterable[RouteView], restored: Collection[str] | None, gone_s: Mapping[str, float]) -> list[Tell]:
    """What the router must be told. `restored`: for a router that has just started, the URLs that its predecessor
    had; what is not known is put back as it was. None: it is the one that was looked at last. `gone_s`: for how many
    seconds a server has been out that somebody else has taken out, by URL."""
    found = []
    for m in members:
        url, wanted = m.route.url, m.judged.standing
        if wanted is Standing.UNKNOWN and restored is not None:
            wanted = Standing.IN if url in restored else Standing.OUT
        # one that leaves is asked back: a router may still keep it, and where it cannot, it is asked once it is gone
        if wanted is Standing.IN and not m.serves and gone_s.get(url, SETTLE_S) >= SETTLE_S:
            found.append(Tell(m.route, True, Cause(Reason.PROVEN, m.judged.why, "", m.route.rank)))
        elif wanted is Standing.OUT and m.listed:
            found.append(Tell(m.route, False, Cause(Reason.GROUP, m.judged.why, "", m.route.rank)))
    return found


def drained(d: Drain, now: float) -> Cause | None:
    """Why the drain of this node is over, if it is: nothing is left to finish, or its time is."""
    if d.out and d.quiet >= QUIET_LOOKS:
        return Cause(Reason.OPERATOR, "drained: its ranks have no request left", f"after {now - d.since:.1f} s")
    if now < d.deadline:
        return None
    left = "an unknown number of" if d.unfinished is None else str(d.unfinished)
    text = f"drained for {now - d.since:.0f} s: {left} requests are not finished"
    return Cause(Reason.OPERATOR, text, d.evidence)
