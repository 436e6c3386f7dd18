"""What an operator asks for: what a word to a target touches, and how it changes the world's wishes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from yrnode.model.board import Intent
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import NotNow, UsageError
from yrnode.model.group import GroupKind, Stage
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import WITH_PROCESS, State
from yrnode.node.world import World
from yrnode.policy import coupling, protocol
from yrnode.policy.intents import ALL


@dataclass(frozen=True)
class Radius:
    """The groups and single components that a word is about, and the components that it starts or stops, in order.
    `coupled`: groups that restart with them."""

    groups: tuple[str, ...]
    singles: tuple[str, ...]
    components: tuple[str, ...]
    coupled: tuple[str, ...] = ()


def radius(world: World, verb: str, target: str) -> Radius:
    """UsageError for an unknown target, NotNow for a fence that cannot be put."""
    groups, singles = _resolve(world, verb, target)
    members = {m for g in groups for m in world.groups[g].members} | set(singles)
    touched = [c for c in world.components.values() if c.name in members]
    if verb == "stop":
        touched = [c for c in touched if c.state in WITH_PROCESS or wanted(world, c) or lent(world, c)]
    elif verb == "start":
        touched = [c for c in touched if not wanted(world, c) or c.state is State.FAILED]
    above: list[ComponentView] = []
    if verb != "stop" and any(c.spec.takes_groups for c in touched):
        above = [c for c in world.components.values() if _runs_above(world, c) and c not in touched]
        touched += above
    order = sorted(touched, key=lambda c: c.plane.order, reverse=verb != "start")
    return Radius(
        tuple(groups), tuple(singles), tuple(c.name for c in order), _taken_along(world, verb, target, groups, above)
    )


def _taken_along(
    world: World, verb: str, target: str, groups: list[str], above: list[ComponentView]
) -> tuple[str, ...]:
    """The other groups that restart with these: not with one that is only stopped, which its start does. `above`:
    ranks that restart with their worker."""
    node, found, s = is_node(world, target), dict[str, None](), world.snapshot(0.0)
    for g in (world.groups[name] for name in groups):
        began = not g.wanted or g.record.stage is Stage.FAILED
        ends = (node or target == ALL) and g.record.stage is Stage.GO
        new = {"restart": True, "start": began and not node, "stop": ends}
        if new[verb]:
            found |= dict.fromkeys(coupling.others(g, s))
    taken = {c.spec.group for c in above if c.spec.group is not None}
    for g in (world.groups[name] for name in taken):
        found |= dict.fromkeys(coupling.others(g, s))
    return tuple(name for name in found if name not in groups and name not in taken)


def asked(world: World, verb: str, target: str, word: str = "") -> Radius:
    """What a word touches. NotNow for one that all nodes must hear, beside one of another protocol. `word`: what was
    said, where that is not `verb`."""
    found = radius(world, verb, target)
    why = protocol.told(world.snapshot(0.0))
    if why and (found.groups or quiet(world, verb, target)):
        raise NotNow(f"{word or verb} {target}: {why}; say it again then")
    return found


def wanted(world: World, c: ComponentView) -> bool:
    """By its own wish, or its group's."""
    return c.wanted if c.spec.group is None else world.groups[c.spec.group].wanted


def lent(world: World, c: ComponentView) -> bool:
    """Whether it is a store drill that keeps it stopped: unless somebody says something else, it starts it again."""
    return not c.wanted and c.unwanted is not None and c.unwanted is world.drill


def _runs_above(world: World, c: ComponentView) -> bool:
    """A rank that restarts with its worker, where the file says so."""
    return c.spec.group is not None and c.state in WITH_PROCESS and wanted(world, c)


def _resolve(world: World, verb: str, target: str) -> tuple[list[str], list[str]]:
    if verb == "fence":
        _refuse_fence(world, target)
        return [], []
    if verb in ("pause", "resume"):
        if target not in (ALL, *world.groups, *world.components):
            raise _no_target(world, verb, target)
        # hands off and hands on touch nothing by themselves
        return [], []
    if verb != "restart" and is_node(world, target):
        mine = [g.name for g in world.groups.values() if g.kind is GroupKind.SERVING]
        return mine if target == world.me else [g for g in mine if target in world.groups[g].nodes], []
    if target == ALL:
        serving = [g.name for g in world.groups.values() if g.kind is GroupKind.SERVING]
        return serving, [c.name for c in world.components.values() if c.spec.group is None]
    group = world.groups.get(target)
    if group is not None and group.kind is GroupKind.CACHE and verb != "restart":
        # its members are started and stopped one by one; only a restart is the group's own
        return [], list(group.members)
    if group is not None:
        return [target], []
    view = world.components.get(target)
    if view is None:
        raise _no_target(world, verb, target)
    # a data-parallel rank neither lives nor dies alone
    return ([view.spec.group], []) if view.spec.group else ([], [view.name])


def is_node(world: World, target: str) -> bool:
    """Whether a target is a node; the name of a group or component goes before."""
    return target in world.peers and target not in world.groups and target not in world.components


def quiet(world: World, verb: str, target: str) -> bool:
    """Whether the word counts though it may touch nothing here."""
    return verb in ("pause", "resume", "fence") or is_node(world, target)


def _no_target(world: World, verb: str, target: str) -> UsageError:
    """With what there is for this verb; a node is not for each."""
    if is_node(world, target):
        groups = ", ".join(g.name for g in world.groups.values() if g.kind is GroupKind.SERVING) or ALL
        instead = {
            "restart": f"a node is not restarted as a whole: stop and start it, or restart its groups: {groups}",
            "pause": f"a node is not paused by itself: pause {ALL}, or groups: {groups}",
            "resume": f"a node is not resumed by itself: resume {ALL}, or groups: {groups}",
        }
        return UsageError(f"{verb} {target}: {instead[verb]}")
    nodes = world.peers if verb in ("start", "stop") else ()
    names = ", ".join([ALL, *world.groups, *world.components, *nodes])
    return UsageError(f"no component or group {target!r} on this node; there are: {names}")


def _refuse_fence(world: World, node: str) -> None:
    # go waits for a former member too, though the file no longer names it
    former = {n for g in world.groups.values() for n in g.record.members}
    if node not in former.union(world.peers):
        raise UsageError(f"no node {node!r} in the cluster file; there are: {', '.join(world.peers)}")
    if node == world.me:
        raise UsageError(f"fence {node}: this is {node}, and its yrnode answers; a fence is for a node that is off")
    if node in world.board.nodes:
        raise NotNow(f"{node} is up: its key is in the store; a fence is for a node that is off")
    if not world.fresh:
        raise NotNow("the store does not answer: a fence cannot be put there now")


def carry_out(world: World, verb: str, target: str, cause: Cause) -> Radius:
    found = radius(world, verb, target)
    if verb in ("pause", "resume"):
        say(world, target, cause, paused=verb == "pause")
        return found
    if verb == "fence":
        return found
    if is_node(world, target):
        say(world, target, cause, run=verb == "start")
        return found
    if target == ALL and verb == "stop":
        say(world, world.me, cause, run=False)
    for name in found.groups if (target, verb) != (ALL, "stop") else ():
        _group(world, name, verb, cause)
    for name in found.singles:
        _single(world, name, verb, cause)
    return found


def _group(world: World, name: str, verb: str, cause: Cause) -> None:
    group = world.groups[name]
    was_wanted = group.wanted
    if verb == "stop":
        say(world, name, cause, run=False)
        return
    for target in (name, world.me):
        if target in world.intents and (not world.intents[target].run or world.intents[target].drain_s):
            say(world, target, cause, run=True)
    if verb == "restart" or not was_wanted or group.record.stage is Stage.FAILED:
        world.update_group(name, restart=cause)


def say(
    world: World,
    target: str,
    cause: Cause,
    *,
    run: bool | None = None,
    paused: bool | None = None,
    drain_s: float = 0.0,
) -> None:
    """An operator's word: one number higher than the last one that this node knows. Any other word ends a drain."""
    before = world.intents.get(target) or world.board.intents.get(target) or Intent(0)
    intent = Intent(
        before.seq + 1,
        before.run if run is None else run,
        before.paused if paused is None else paused,
        drain_s,
        world.me,
        cause.text,
        time.time(),
    )
    world.heed(target, intent)


def _single(world: World, name: str, verb: str, cause: Cause) -> None:
    view = world.components[name]
    if verb == "stop":
        world.update(name, wanted=False, unwanted=cause, restart=None)
    elif verb == "restart" or not view.wanted or view.state is State.FAILED:
        world.update(name, wanted=True, unwanted=None, restart=cause, history=())
    else:
        world.update(name, wanted=True, unwanted=None)


def stopped_by_wish(world: World) -> dict[str, Cause]:
    """The single components that an operator wants to stay stopped: neither a drill nor yrnode's own end."""
    singles = [c for c in world.components.values() if c.spec.group is None and not c.wanted and not lent(world, c)]
    said = {c.name: c.unwanted for c in singles if c.unwanted is not None}
    return {name: cause for name, cause in said.items() if cause.reason is Reason.OPERATOR}


def keep_stopped(world: World, name: str, cause: Cause) -> None:
    """Put an earlier wish back; a name that the cluster file no longer has is left out."""
    if name in world.components:
        _single(world, name, "stop", cause)


def shut_down(world: World) -> None:
    """Nothing is wanted any more: yrnode itself goes down."""
    cause = Cause(Reason.SHUTDOWN, "yrnode goes down")
    # a word of another node that comes meanwhile has these saved
    kept = stopped_by_wish(world)
    world.closing = True
    world.rethink()
    for name in world.components:
        world.update(name, wanted=False, unwanted=kept.get(name, cause), restart=None)
