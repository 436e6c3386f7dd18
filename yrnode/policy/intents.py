"""What operators want, across nodes and stores: the higher number wins, and whoever has it puts it back.

An intent that is read is kept before anything else is decided: it wins over what this node would do by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from yrnode.model.action import Action
from yrnode.model.board import BoardMove, Intent
from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import Snapshot
from yrnode.model.state import WITH_PROCESS
from yrnode.policy import protocol
from yrnode.policy.life import life

ALL = "all"
HEARD_EVERYWHERE_S = 10.0
"""How long a pause waits for the nodes that are there; who asks for one waits longer."""


def decide(s: Snapshot) -> list[Action]:
    found = []
    for target, stored in s.board.intents.items():
        kept = s.intents.get(target)
        if kept is None or (stored.seq >= kept.seq and stored != kept):
            found.append(Action(BoardMove.HEED, target, _cause(stored), intent=stored))
    if found or not s.fresh:
        return found
    for target, kept in s.intents.items():
        there = s.board.intents.get(target)
        if target not in s.saying and (there is None or there.seq < kept.seq):
            found.append(Action(BoardMove.SAY, target, _cause(kept), intent=kept))
    if s.me in s.board.fences and s.settled and s.me not in s.saying and not _old(s):
        cause = Cause(Reason.RECOVERED, f"{s.me} is back, and nothing of an earlier life runs on it")
        found.append(Action(BoardMove.UNFENCE, s.me, cause))
    return [] if found and protocol.strangers(s) else found


def unsaid(s: Snapshot) -> list[str]:
    """The targets of words to this node that have not reached the store: till then others hold to older ones."""
    return [target for target, kept in s.intents.items() if s.board.intents.get(target) != kept]


def _old(s: Snapshot) -> bool:
    """Whether anything runs here that is older than its group's record."""
    for g in s.groups.values():
        members = [s.components[m] for m in g.members]
        if any(c.state in WITH_PROCESS and life(c, g) < g.record.n for c in members):
            return True
        stored = s.board.records.get(g.name)
        if stored is None or stored.record != g.record:
            return True
    return False


def paused(target: str, s: Snapshot) -> bool:
    """Whether an operator has said hands off: nothing is begun for this target on our own."""
    return any(s.intents[t].paused for t in (ALL, target) if t in s.intents)


def stopped(group: str, s: Snapshot) -> bool:
    """Whether an operator keeps this group stopped, on all nodes."""
    said = s.intents.get(group)
    return said is not None and not said.run


def _cause(i: Intent) -> Cause:
    what = "pause" if i.paused else "drain" if i.drain_s else "run" if i.run else "stop"
    return Cause(Reason.OPERATOR, i.why or f"{what}, by {i.by}")


def draining(nodes: Iterable[str], kept: Mapping[str, Intent]) -> Mapping[str, Intent]:
    """Those of these nodes that finish their requests before they stop."""
    return {n: kept[n] for n in nodes if n in kept and kept[n].drain_s > 0 and kept[n].run}


def unwanted(group: str, me: str, kept: Mapping[str, Intent]) -> Cause | None:
    """Why this node's part of a group is to stay stopped, if it is."""
    said = (kept.get(target) for target in (group, me))
    return next((_cause(i) for i in said if i is not None and not i.run), None)
