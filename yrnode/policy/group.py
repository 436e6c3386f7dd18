"""What a group needs next: its members stop, clean and start together.

Invariants, for the members on this node:
- no member of generation n starts while a member of an earlier one may be alive: go is written only when every
  member is clean;
- one fault, one bump: only a fault of a member that was started for the record's own generation counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupMove, GroupRecord, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import RUNNING, State
from yrnode.policy import cache, component, restart, worker


@dataclass(frozen=True)
class Budget:
    """The fault number `faults` in a row ends the group. A life of `forgive_after_s` seconds starts a new row."""

    faults: int = 3
    forgive_after_s: float = 600.0


def first_record() -> GroupRecord:
    return GroupRecord(1, Stage.STOP, Cause(Reason.START, "first start"))


def decide(g: GroupView, s: Snapshot) -> Action | None:
    members = [s.components[name] for name in g.members]
    if g.kind is GroupKind.CACHE:
        return _decide_cache(g, members, s)
    if not g.wanted:
        if g.record.stage is Stage.STOP:
            return None
        why = g.unwanted or Cause(Reason.OPERATOR, "stopped by an operator")
        # a shutdown must not undo what was given up; the members stop because they are not wanted
        return None if g.record.stage is Stage.FAILED else _bump(g, why, 0, 0.0)
    if g.restart is not None:
        # what serves through the members goes down before them
        return _bump(g, g.restart, 0, 0.0) if all(component.turn(m, s) for m in members) else None
    if g.record.stage is Stage.GO:
        return _judge(g, members, s)
    if g.record.stage is Stage.STOP:
        return _go(g, members, s)
    return None


def _decide_cache(g: GroupView, members: list[ComponentView], s: Snapshot) -> Action | None:
    if g.restart is not None:
        return _bump(g, g.restart, 0, 0.0)
    if g.record.stage is Stage.GO:
        found = cache.evidence(g, s)
        return _fault(g, members, found, s) if found is not None else None
    return cache.go(g, members, s) if g.record.stage is Stage.STOP else None


def _judge(g: GroupView, members: list[ComponentView], s: Snapshot) -> Action | None:
    for member in members:
        if member.state is State.STOPPED and member.generation < g.record.n:
            # this node has started n, by its own record, and finds no instance of it: a reboot
            lost = Cause(Reason.EXITED, f"no instance of generation {g.record.n} was found", "", member.name)
            return _fault(g, members, lost, s)
        if member.state not in RUNNING or member.generation != g.record.n:
            continue
        found = component.fault(member, s)
        if found is not None:
            return _fault(g, members, replace(found, component=found.component or member.name), s)
    found = worker.evidence(g, s)
    return _bump(g, found, g.record.fails, s.now) if found is not None else None


def _fault(g: GroupView, members: list[ComponentView], cause: Cause, s: Snapshot) -> Action:
    if any(m.drilled for m in members):
        return _bump(g, cause, g.record.fails, s.now)
    if not cause.fault:
        # no member's doing, such as a full disk
        return _bump(g, cause, g.record.fails, s.now + component.PAUSE_S)
    if cause.reason is Reason.CONFIGURATION:
        return _fail(g, cause, g.record.fails + 1)
    budget = Budget()
    ready_at = [m.ready_at for m in members if m.ready_at is not None]
    lived = s.now - max(ready_at) if len(ready_at) == len(members) else 0.0
    fails = 1 if lived >= budget.forgive_after_s else g.record.fails + 1
    if fails >= budget.faults:
        return _fail(g, replace(cause, text=f"{cause.text}; fault {fails} in a row, given up"), fails)
    delay = restart.backoff(fails, s.jitter, restart.RestartPolicy())
    return _bump(g, cause, fails, s.now + delay)


def _go(g: GroupView, members: list[ComponentView], s: Snapshot) -> Action | None:
    for member in members:
        if member.state is State.CLEANING and member.blocked is not None:
            return _fail(g, replace(member.blocked, component=member.name), g.record.fails)
    if s.now < g.record.not_before:
        return None
    if any(m.state is not State.CLEANING or not m.cleaned or component.missing(m, s) for m in members):
        return None
    return Action(GroupMove.GO, g.name, g.record.cause, record=replace(g.record, stage=Stage.GO))


def _bump(g: GroupView, cause: Cause, fails: int, not_before: float) -> Action:
    record = GroupRecord(g.record.n + 1, Stage.STOP, cause, fails, not_before)
    return Action(GroupMove.BUMP, g.name, cause, record=record)


def _fail(g: GroupView, cause: Cause, fails: int) -> Action:
    record = GroupRecord(g.record.n + 1, Stage.FAILED, cause, fails)
    return Action(GroupMove.FAIL, g.name, cause, record=record)
