"""What an operator's word will touch, in the words of the API: said before it is meant."""

from __future__ import annotations

from typing import Any

from yrnode.model.snapshot import Snapshot
from yrnode.model.state import State
from yrnode.node import operator
from yrnode.node.operator import Radius
from yrnode.node.world import GroupPlace, World
from yrnode.policy.component import wanted
from yrnode.policy.intents import ALL
from yrnode.policy.usual import expected_s

BRINGS_UP = ("start", "restart", "drill")


def told(world: World, verb: str, target: str, found: Radius, now: float, done: bool) -> dict[str, Any]:
    """The blast radius, as `api.node.Node.control` has it. `now`: monotonic seconds."""
    groups, s = touched(world, verb, target, found), world.snapshot(now)
    others = [c for c in world.components.values() if c.spec.group not in found.coupled]
    return {
        "verb": verb,
        "target": target,
        "components": list(found.components),
        "untouched": [c.name for c in others if c.name not in found.components],
        "coupled": list(found.coupled),
        "quiet": operator.quiet(world, verb, target),
        "groups": groups,
        "nodes": _nodes(world, verb, target, found, groups),
        "ranks": sum(_place(world, g).ranks for g in groups),
        "usual_s": expected_s(found.components, groups, s) if verb in BRINGS_UP else None,
        "waiting": _waiting(s) if verb == "resume" else [],
        "done": done,
    }


def touched(world: World, verb: str, target: str, found: Radius) -> list[str]:
    """Groups, coupled ones too: those that stop or start as a whole, or of whose healing the word is."""
    serving = [name for name, place in world.places.items() if place.ranks]
    if verb == "fence":
        former = {g.name for g in world.groups.values() if target in g.record.members}
        return [name for name in serving if target in world.places[name].nodes or name in former]
    if verb in ("pause", "resume"):
        return serving if target == ALL else [target] if target in world.groups else []
    whole = (world.components[name].spec.group for name in found.components)
    return list(dict.fromkeys(g for g in (*found.groups, *whole, *found.coupled) if g is not None))


def _nodes(world: World, verb: str, target: str, found: Radius, groups: list[str]) -> list[str]:
    if verb == "fence":
        return [target]
    if target == ALL and verb in ("pause", "resume"):
        return list(world.peers)
    here = [world.me] if found.components or verb in ("pause", "resume") else []
    return list(dict.fromkeys((*here, *(n for g in groups for n in _place(world, g).nodes))))


def _place(world: World, group: str) -> GroupPlace:
    """Of one that restarts with these, this node may hold nothing."""
    return world.places.get(group) or GroupPlace(())


def _waiting(s: Snapshot) -> list[str]:
    """What would have been healed meanwhile."""
    return [f"{c.name} ({c.state.value})" for c in s.components.values() if wanted(c, s) and c.state in _ILL]


_ILL = (State.UNHEALTHY, State.STOPPED, State.BACKOFF)
