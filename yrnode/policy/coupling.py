"""Groups that `restart_with` couples: a new life of one is a new life of all of them, in one transaction.

The coupled bump is free for the group that is taken along, and no evidence for another: who decides a bump names all
that go with it, and nobody couples anything to a bump that he only reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Stage
from yrnode.model.snapshot import GroupView, Snapshot
from yrnode.policy import intents


def taken_along(g: GroupView, cause: Cause, s: Snapshot) -> dict[str, GroupRecord]:
    """The records that are written together with a bump of this group, by group.

    Nobody is taken along while an operator keeps this group stopped: what starts it again does that. Left as it is
    one that stops already, was given up, has never lived, is paused or is kept stopped.
    """
    if intents.stopped(g.name, s):
        return {}
    told = f"{cause.component}: {cause}" if cause.component else str(cause)
    why = Cause(Reason.COUPLED, f"coupled: {g.name}", told)
    return {
        name: GroupRecord(r.n + 1, Stage.STOP, why, r.fails, members=r.members) for name, r in others(g, s).items()
    }


def others(g: GroupView, s: Snapshot) -> dict[str, GroupRecord]:
    """The groups that a new life of this one takes along, with their present records."""
    records = {name: _newest(name, s) for name in g.coupled if not _in_hand(name, s)}
    return {name: r for name, r in records.items() if r is not None and r.stage is Stage.GO}


def _in_hand(name: str, s: Snapshot) -> bool:
    return intents.paused(name, s) or intents.stopped(name, s)


def _newest(name: str, s: Snapshot) -> GroupRecord | None:
    """Of a group that may not be this node's; where the store has lost something, ours is the newer one."""
    stored, own = s.board.records.get(name), s.groups.get(name)
    if stored is None:
        return None
    return own.record if own is not None and own.record.order > stored.record.order else stored.record


def coupled(restart_with: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """By group, the others that are coupled with it: whoever of the two names the other, and through others too."""
    sets = {name: {name} for name in restart_with}
    for name, others in restart_with.items():
        whole = sets[name].union(*(sets[o] for o in others if o in sets))
        for member in whole:
            sets[member] = whole
    return {name: tuple(n for n in restart_with if n in whole and n != name) for name, whole in sets.items()}
