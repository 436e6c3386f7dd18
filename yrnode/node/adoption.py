"""At the daemon's start: what an earlier one left running is taken over, and what it remembered is put back.

A component that runs keeps running, with its generation; one that died meanwhile is an ordinary death. Nothing is
compared with the cluster file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupRecord, Stage
from yrnode.model.snapshot import ComponentView, GroupView
from yrnode.model.state import State
from yrnode.node.memory import Memory
from yrnode.node.world import World
from yrnode.policy.life import life
from yrnode.process import adopt, atomic, record, table
from yrnode.process.instance import Instance
from yrnode.process.launch import Owner


@dataclass(frozen=True)
class Found:
    """A component's record, and what was said while it was looked for."""

    record: record.Record | None
    notes: tuple[str, ...] = ()


def find(view: ComponentView, owner: Owner) -> Found:
    """The record of the last instance: from its file, or where that is lost, from the marks of its processes."""
    path = record.path_of(owner.run_dir, view.name)
    try:
        kept = record.load(path)
    except atomic.Unreadable as e:
        aside = atomic.set_aside(path)
        where = f"set aside as {aside.name}" if aside else "and in the way"
        rebuilt = adopt.from_marks(view.spec, owner)
        return Found(
            rebuilt,
            (f"record unreadable, {where}: {e}", *([f"found by its mark: {rebuilt.mark}"] if rebuilt else [])),
        )
    return Found(kept or adopt.from_marks(view.spec, owner))


def take_over(world: World, name: str, instance: Instance, now: float) -> None:
    """The facts of an instance that was started by an earlier daemon."""
    view, kept = world.components[name], instance.record
    ready = kept.ready_at is not None
    checks = {k: replace(t, passed=ready) for k, t in view.checks.items()}
    world.update(
        name,
        state=State.READY if ready else State.STARTING,
        since=kept.ready_at if ready else min(now, table.monotonic_of(kept.began)),
        cause=Cause(Reason.START, f"adopted as instance {kept.instance}, which an earlier yrnode had started"),
        instance=kept.instance,
        generation=kept.generation,
        life=kept.life,
        pid=instance.pid,
        began=kept.began,
        deadline=None if ready else now + view.spec.start_timeout_s,
        ready_at=kept.ready_at,
        checks=checks,
    )


def recall_group(group: GroupView, memory: Memory, components: Mapping[str, ComponentView]) -> GroupView:
    """The group as it was kept. Without that, the running members' generation is the best there is."""
    kept = memory.load_group(group)
    if kept is not None:
        return kept
    running = [components[m] for m in group.members if components[m].state is not State.STOPPED]
    lives = [life(c, group) for c in running]
    if not any(lives):
        return group
    n, found = max(lives), "the group's record was lost; its members were found running"
    if group.kind is GroupKind.SERVING and (len(lives) < len(group.members) or len(set(lives)) > 1):
        return replace(group, record=GroupRecord(n + 1, Stage.STOP, Cause(Reason.START, found)), started=n)
    # the store that its workers know is not known then: the next go will know
    record = GroupRecord(n, Stage.GO, Cause(Reason.START, found), members=group.nodes, digest=group.digest)
    return replace(group, record=record, started=n, cleaned=n)
