"""How long each phase of a recovery took, from the first evidence of the fault. Pure: what is known so far and a
snapshot in, the phases that have just been reached out.

A group recovers as a whole: `seen`, `stopped`, `clean`, `go`, `ready` (all of this node's part), `serving` (every
node's part is ready, and where the router is here, it lists this group's ranks). A component that restarts alone has
no go and no serving. Of a fault of another node the first evidence here is its record, so nothing is `seen` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import WITH_PROCESS, State
from yrnode.policy import component
from yrnode.policy.life import life

COMPONENT = ("stopped", "clean", "ready")
GROUP = ("stopped", "clean", "go", "ready", "serving")


@dataclass(frozen=True)
class Step:
    """`seconds` from the first evidence to `phase`, of a group or of a component that restarts alone."""

    phase: str
    seconds: float
    group: str = ""
    component: str = ""


@dataclass(frozen=True)
class Recovery:
    """From one fault, of which there was evidence at `began`, with what was decided at `decided` (monotonic seconds).
    `left`: phases to come, `reached`: those of this round. `life`: the instance that has failed, or the n of the
    record that the fault began."""

    life: str
    began: float = 0.0
    decided: float = 0.0
    left: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    components: Mapping[str, Recovery] = field(default_factory=dict)
    groups: Mapping[str, Recovery] = field(default_factory=dict)


def follow(known: Known, s: Snapshot) -> tuple[Known, list[Step]]:
    """To be called with each round's snapshot: a phase is reached when a round first sees it."""
    steps: list[Step] = []
    components: dict[str, Recovery] = {}
    for c in s.components.values():
        before, now = known.components.get(c.name), _component(known.components.get(c.name), c, s)
        if now is not None:
            own = c.spec.group is None
            steps += _steps(before, now, s.now, component=c.name) if own else []
            components[c.name] = now
    groups: dict[str, Recovery] = {}
    for g in s.groups.values():
        before, now = known.groups.get(g.name), _group(known.groups.get(g.name), g, components, s)
        steps += _steps(before, now, s.now, group=g.name)
        groups[g.name] = now
    return Known(components, groups), steps


def _steps(before: Recovery | None, now: Recovery, at: float, *, group: str = "", component: str = "") -> list[Step]:
    if now.decided and (before is None or before.life != now.life):
        return [Step("seen", max(0.0, now.decided - now.began), group, component)]
    return [Step(phase, max(0.0, at - now.began), group, component) for phase in now.reached]


def _component(r: Recovery | None, c: ComponentView, s: Snapshot) -> Recovery | None:
    if c.state is State.STOPPING and c.leaving is not None and c.leaving.fault:
        if r is None or r.life != c.instance:
            began = _evidence(c, c.leaving, c.since, s)
            return Recovery(c.instance, began, c.since, COMPONENT)
        return replace(r, reached=())
    if r is None or not r.left or c.state is State.FAILED or not component.wanted(c, s):
        return None
    reached = {
        "stopped": c.state not in WITH_PROCESS or c.instance != r.life,
        "clean": _clean(c) or c.instance not in ("", r.life),
        "ready": c.state is State.READY and c.instance != r.life,
    }
    return _after(r, reached)


def _group(r: Recovery | None, g: GroupView, ranks: Mapping[str, Recovery], s: Snapshot) -> Recovery:
    n = str(g.record.n)
    if r is None:
        # what this daemon finds has begun before it
        return Recovery(n)
    cause = g.record.cause
    if r.life != n:
        if g.record.stage is Stage.FAILED or not cause.fault or not g.wanted:
            return Recovery(n)
        return _begun(n, g, ranks, s)
    if g.record.stage is Stage.FAILED or not g.wanted:
        return replace(r, left=(), reached=())
    members = [s.components[name] for name in g.members]
    begun = [c.state in WITH_PROCESS and c.state is not State.STOPPING and life(c, g) == g.record.n for c in members]
    ready = all(c.state is State.READY and now for c, now in zip(members, begun, strict=True))
    reached = {
        "stopped": all(now or c.state not in WITH_PROCESS for c, now in zip(members, begun, strict=True)),
        "clean": all(now or _clean(c) for c, now in zip(members, begun, strict=True)),
        "go": g.record.stage is Stage.GO,
        "ready": ready,
        "serving": ready and g.ready_since is not None and _behind_router(g, s),
    }
    return _after(r, reached)


def _begun(n: str, g: GroupView, ranks: Mapping[str, Recovery], s: Snapshot) -> Recovery:
    """The start of a group's recovery: by its own member's fault, or as somebody else has found it."""
    cause = g.record.cause
    culprit = s.components.get(cause.component)
    if culprit is not None and culprit.name in g.members:
        own = ranks.get(culprit.name)
        if own is not None and culprit.instance in ("", own.life):
            # what is dead is ended at once; the record may have waited for the store
            return Recovery(n, own.began, own.decided, GROUP)
        return Recovery(n, _evidence(culprit, cause, g.learned_at, s), g.learned_at, GROUP)
    if g.record.by not in ("", s.me):
        return Recovery(n, g.learned_at, 0.0, GROUP)
    away = s.absent.get(cause.component.partition("/")[0])
    return Recovery(n, g.learned_at if away is None else away.since, g.learned_at, GROUP)


def _evidence(c: ComponentView, cause: Cause, decided: float, s: Snapshot) -> float:
    """When the first thing was known that speaks for the cause; the decision's own moment where nothing did."""
    found = [decided]
    if c.died_at is not None:
        found.append(c.died_at)
    elif cause.reason in (Reason.CHECK, Reason.HANG):
        for check in c.spec.checks:
            tally = c.checks.get(check.name)
            if tally is None or not tally.failures or not check.act:
                continue
            if cause.reason is Reason.HANG or (tally.failing and not check.witness):
                found.append(tally.failing_since)
    return min(found)


def _after(r: Recovery, reached: Mapping[str, bool]) -> Recovery:
    """Phases come in order: a later one is not reached before an earlier."""
    now = tuple(takewhile(lambda phase: reached[phase], r.left))
    return replace(r, left=r.left[len(now) :], reached=now)


def _clean(c: ComponentView) -> bool:
    return c.state is State.CLEANING and c.cleaned


def _behind_router(g: GroupView, s: Snapshot) -> bool:
    here = [m for m in s.router.members.values() if m.route.group == g.name] if s.router is not None else []
    return all(m.serves for m in here)
