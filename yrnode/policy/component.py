"""What one component needs next. Pure: a snapshot in, at most one action out."""

from __future__ import annotations

from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupRecord, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import RUNNING, WITH_PROCESS, Move, Plane, State
from yrnode.policy import cache, intents, members, restart
from yrnode.policy.hang import hang
from yrnode.policy.life import over

PAUSE_S = 1.0
"""Before the next start where the last could not be made for a reason that is no fault of the component."""

STORE_STEADY_S = 30.0
"""For so long the store must have answered before a worker is restarted for what a check says against it."""


def decide(c: ComponentView, s: Snapshot) -> Action | None:
    if c.state in RUNNING:
        return _running(c, s)
    match c.state:
        case State.STOPPED | State.BACKOFF:
            return _resting(c, s)
        case State.CLEANING:
            return _cleaning(c, s)
        case State.STOPPING:
            return _stopping(c, s)
        case _:
            return _given_up(c, s)


def wanted(c: ComponentView, s: Snapshot) -> bool:
    """Whether the component should run: its own wish, or its group's."""
    if c.spec.group is None:
        return c.wanted
    return s.groups[c.spec.group].wanted


def missing(c: ComponentView, s: Snapshot) -> list[str]:
    """What must be ready before this component may start, and is not: names, each with its state."""
    lacking = [
        f"{other.name} ({other.state.value})"
        for other in s.below(c.plane)
        if (other.state is not State.READY or other.restart is not None) and not members.stands_in(other, s)
    ]
    if c.plane is not Plane.STORE and not s.store_available:
        lacking.append("store (unavailable)")
    elif c.plane is Plane.CACHE and s.store_refusal is not None:
        # a worker registers itself there, with a lease that would be refused
        lacking.append("store (refuses writes)")
    return lacking


def fault(c: ComponentView, s: Snapshot) -> Cause | None:
    """Why the running instance must be replaced, if it must."""
    if c.death is not None:
        return c.death
    strange = members.outcast(c)
    if strange is not None:
        return strange
    if c.state is State.STARTING:
        # a proof that came with the deadline counts
        if c.deadline is not None and s.now >= c.deadline and not _may_be_ready(c):
            took = f"not ready {c.spec.start_timeout_s:g} s after its start"
            return Cause(Reason.START_TIMEOUT, took, _first_gap(c), c.name)
        return None
    found = complaint(c, s)
    return found if found is not None and _may_restart(c, found, s) else None


def complaint(c: ComponentView, s: Snapshot) -> Cause | None:
    """What is said against a component that was ready, whether it may be restarted for it or not."""
    if c.death is not None:
        return c.death
    hung = hang(c, s)
    if hung is not None:
        return hung
    for check in c.spec.checks:
        tally = c.checks[check.name]
        if check.act and check.watch and not check.witness and tally.failing:
            return Cause(Reason.CHECK, f"check {check.name} fails", tally.result.evidence, c.name)
    return None


def _may_be_ready(c: ComponentView) -> bool:
    return c.proven and c.pid is not None and c.death is None


def _first_gap(c: ComponentView) -> str:
    for check in c.spec.gates:
        tally = c.checks[check.name]
        if not tally.passed:
            return f"{check.name}: {tally.result.evidence}"
    return "its main process was not found"


def _may_restart(c: ComponentView, found: Cause, s: Snapshot) -> bool:
    # A worker cannot start without etcd: while that is away or takes no writes, a sick worker is better than none.
    if c.plane is not Plane.CACHE:
        return True
    stores = [o for o in s.components.values() if o.plane is Plane.STORE]
    # One that an outage has cost its lease serves no key for some seconds after it, and comes back by itself.
    steady = found.reason is not Reason.CHECK or s.now - s.store_since >= STORE_STEADY_S
    writable = s.store_available and s.store_refusal is None
    return steady and writable and all(o.state is State.READY or members.stands_in(o, s) for o in stores)


def _unwanted(c: ComponentView, s: Snapshot) -> Cause:
    view = c if c.spec.group is None else s.groups[c.spec.group]
    return view.unwanted or Cause(Reason.OPERATOR, "stopped by an operator")


def turn(c: ComponentView, s: Snapshot) -> bool:
    """Stops that were asked for go from the top plane down; nobody loses what it still needs."""
    return not any(o.state in WITH_PROCESS and _ending(o, s) for o in s.above(c.plane))


def _ending(c: ComponentView, s: Snapshot) -> bool:
    if c.state is State.STOPPING or c.restart is not None or not wanted(c, s):
        return True
    group = s.groups.get(c.spec.group or "")
    return group is not None and (group.restart is not None or group.record.stage is not Stage.GO)


def _running(c: ComponentView, s: Snapshot) -> Action | None:
    if not wanted(c, s):
        return Action(Move.STOP, c.name, _unwanted(c, s)) if turn(c, s) else None
    if c.restart is not None:
        return Action(Move.STOP, c.name, c.restart) if turn(c, s) else None
    group = s.groups.get(c.spec.group or c.spec.lives_with or "")
    if group is not None and over(c, group):
        own = group.record.cause.component == c.name and group.kind is GroupKind.SERVING
        return Action(Move.STOP, c.name, group.record.cause if own else Cause(Reason.GROUP, *_group_words(c, s)))
    if intents.paused(c.spec.group or c.name, s):
        return _health(c, s)
    # a rank's judgement is its group's; but what is dead is ended here at once, whatever the store says
    found = c.death if c.spec.group is not None else fault(c, s)
    return Action(Move.STOP, c.name, found) if found is not None else _health(c, s)


def _health(c: ComponentView, s: Snapshot) -> Action | None:
    if c.state is State.STARTING:
        if _may_be_ready(c):
            gates = ", ".join(k.name for k in c.spec.gates)
            return Action(Move.READY, c.name, Cause(Reason.PROVEN, f"proven by {gates}"))
        return None
    found = complaint(c, s)
    if found is not None and c.state is State.READY:
        return Action(Move.UNHEALTHY, c.name, found)
    if found is None and c.state is State.UNHEALTHY and c.death is None:
        return Action(Move.RECOVER, c.name, Cause(Reason.RECOVERED, "its checks pass again"))
    return None


def _group_words(c: ComponentView, s: Snapshot) -> tuple[str, str]:
    group = c.spec.group or c.spec.lives_with or ""
    record = s.groups[group].record
    whose = f"{record.cause.component}: " if record.cause.component else ""
    what = "is given up" if record.stage is Stage.FAILED else f"restarts as generation {record.n}"
    return f"group {group} {what}", f"{whose}{record.cause}"


def _resting(c: ComponentView, s: Snapshot) -> Action | None:
    if not wanted(c, s):
        return Action(Move.STOP, c.name, _unwanted(c, s)) if c.state is State.BACKOFF else None
    if c.state is State.BACKOFF and c.restart is None and s.now < (c.deadline or 0.0):
        return None
    if missing(c, s) or (c.leaving is not None and c.restart is None and intents.paused(c.name, s)):
        return None
    cause = c.restart or c.leaving or Cause(Reason.START, "first start")
    if c.spec.group is not None:
        group = s.groups[c.spec.group]
        record = group.record
        if record.stage is Stage.FAILED:
            return Action(Move.GIVE_UP, c.name, record.cause)
        # a daemon that was gone between go and the start begins what it had promised to be clean for; what it has
        # begun and does not find is a loss
        if record.stage is Stage.GO and (group.started == record.n or not may_begin(c, group, s)):
            return None
        cause = _why_start(record)
    return Action(Move.CLEAN, c.name, cause)


def _cleaning(c: ComponentView, s: Snapshot) -> Action | None:
    if not wanted(c, s):
        return Action(Move.STOP, c.name, _unwanted(c, s))
    cause = c.cause or Cause(Reason.START, "first start")
    if c.spec.group is not None:
        group = s.groups[c.spec.group]
        record = group.record
        if record.stage is Stage.FAILED:
            return Action(Move.GIVE_UP, c.name, record.cause)
        if not c.cleaned or not may_begin(c, group, s):
            return None
        cause = _why_start(record)
    elif c.blocked is not None:
        return Action(Move.GIVE_UP, c.name, c.blocked)
    elif not c.cleaned:
        return None
    elif c.spec.lives_with is not None:
        record = s.groups[c.spec.lives_with].record
        if record.stage is Stage.FAILED:
            return Action(Move.GIVE_UP, c.name, record.cause)
        if not cache.may_start(c, s.groups[c.spec.lives_with], s):
            return None
    # what it needs may have gone while it was being cleaned
    return None if missing(c, s) else Action(Move.START, c.name, cause)


def may_begin(c: ComponentView, g: GroupView, s: Snapshot) -> bool:
    """A rank begins only on go, only on a node that go counts as a member and that has promised to be clean, once."""
    member = s.me in g.record.members and g.cleaned == g.record.n
    return g.record.stage is Stage.GO and member and c.generation < g.record.n


def _why_start(record: GroupRecord) -> Cause:
    shut = record.cause.reason is Reason.SHUTDOWN
    return Cause(Reason.START, "start after a shutdown") if shut else record.cause


def _stopping(c: ComponentView, s: Snapshot) -> Action | None:
    if not c.gone:
        return None
    gone = Cause(Reason.GONE, "nothing of the instance is left")
    if not wanted(c, s) or c.restart is not None:
        return Action(Move.REST, c.name, gone)
    if c.spec.group is not None:
        record = s.groups[c.spec.group].record
        if record.stage is Stage.FAILED:
            return Action(Move.GIVE_UP, c.name, record.cause)
        return Action(Move.REST, c.name, gone)
    if c.leaving is not None and c.leaving.reason is Reason.RESIDUE:
        return Action(Move.WAIT, c.name, c.leaving, PAUSE_S)
    if c.leaving is None or not c.leaving.fault:
        return Action(Move.REST, c.name, gone)
    if c.drilled:
        cause = Cause(
            c.leaving.reason, f"{c.leaving.text}; a drill, at once", c.leaving.evidence, c.leaving.component
        )
        return Action(Move.WAIT, c.name, cause)
    verdict = restart.judge(c.history, s.now, s.jitter)
    why = c.leaving
    if isinstance(verdict, restart.GiveUp):
        return Action(Move.GIVE_UP, c.name, Cause(why.reason, verdict.text, "", c.name))
    return Action(
        Move.WAIT, c.name, Cause(why.reason, f"{why.text}; {verdict.text}", why.evidence, c.name), verdict.delay_s
    )


def _given_up(c: ComponentView, s: Snapshot) -> Action | None:
    if not wanted(c, s):
        return Action(Move.STOP, c.name, _unwanted(c, s))
    if c.spec.group is not None:
        record = s.groups[c.spec.group].record
        return Action(Move.REST, c.name, record.cause) if record.stage is Stage.STOP else None
    if c.restart is not None and not missing(c, s):
        return Action(Move.CLEAN, c.name, c.restart)
    return None


def waits_for(c: ComponentView, s: Snapshot) -> list[str]:
    """What keeps a wanted component from starting, for people."""
    if c.state in (State.STOPPED, State.BACKOFF, State.CLEANING) and wanted(c, s):
        return missing(c, s)
    return []
