"""What a group needs next: its members, on all its nodes, stop, clean and start together.

Every node decides this alone, from the keys that all share and from what it keeps. Invariants:
- no member of life n starts while one of an earlier life may be alive on a node that is not fenced: go is written
  only when every node has promised `clean@n`, and a member starts only on go, only where that was promised, once;
- one fault, one bump: a bump is a swap of the record as it was read, and only evidence about that very life counts;
- a node that keeps a newer record than the store's puts it back before anything else: a store that was emptied or
  restored neither stops what serves nor counts its lives anew;
- the absence of a node is no evidence;
- beside a node that speaks another protocol nobody writes a record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from yrnode.model.action import Action
from yrnode.model.board import Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupMove, GroupRecord, Phase, Stage
from yrnode.model.snapshot import GroupView, Snapshot
from yrnode.policy import cache, component, coupling, evidence, gather, intents, phase, protocol, restart, worker


@dataclass(frozen=True)
class Budget:
    """The fault number `faults` in a row ends the group. A life of `forgive_after_s` seconds starts a new row."""

    faults: int = 3
    forgive_after_s: float = 600.0


INFORM_AFTER_S = 0.5
"""A phase that only informs is told once it has outlasted this; what others wait for is told at once. Each word
goes to all nodes, and would wait with the record for the same cores: 256 nodes on two of them stop within this."""


def first_record() -> GroupRecord:
    return GroupRecord(1, Stage.STOP, Cause(Reason.START, "first start"))


def decide(g: GroupView, s: Snapshot) -> Action | None:
    stored = s.board.records.get(g.name)
    if stored is not None and stored.record != g.record and stored.record.order >= g.record.order:
        return Action(GroupMove.LEARN, g.name, stored.record.cause, record=stored.record)
    if g.busy or not s.fresh:
        return None
    if stored is None or stored.record != g.record:
        return _among_alike(_put_back(g, stored, s), s)
    if not s.settled or intents.unsaid(s):
        return None
    return _among_alike(_judge(g, s), s) or _tell(g, s)


def _among_alike(found: Action | None, s: Snapshot) -> Action | None:
    return found if found is not None and not protocol.strangers(s) else None


def wish(g: GroupView, s: Snapshot) -> Action | None:
    """What would be decided about it if the shared keys could be trusted and written now."""
    return _judge(g, replace(s, fresh=True, settled=True))


def _put_back(g: GroupView, stored: Stored | None, s: Snapshot) -> Action | None:
    # a group that has never lived is begun by this too; that is a decision, and waits for a pause to end
    begins = stored is None and g.record == first_record()
    if begins and intents.paused(g.name, s):
        return None
    cause = g.record.cause if begins else Cause(Reason.STORE, "the store had lost it", _words(stored))
    return Action(GroupMove.PUT_BACK, g.name, cause, record=g.record)


def _words(stored: Stored | None) -> str:
    return "no record" if stored is None else f"life {stored.record.n}, stage {stored.record.stage.value}"


def _judge(g: GroupView, s: Snapshot) -> Action | None:
    if intents.paused(g.name, s):
        return None
    if g.restart is not None and (g.wanted or g.kind is GroupKind.CACHE):
        # what serves through the members goes down before them
        turn = g.kind is GroupKind.CACHE or all(component.turn(s.components[m], s) for m in g.members)
        return _bump(g, s, g.restart, 0, 0.0) if turn else None
    if g.record.stage is Stage.GO:
        return _judge_life(g, s)
    return _judge_stop(g, s) if g.record.stage is Stage.STOP else None


def _judge_life(g: GroupView, s: Snapshot) -> Action | None:
    if g.kind is GroupKind.SERVING and not g.wanted:
        return _bump(g, s, g.unwanted or Cause(Reason.OPERATOR, "stopped by an operator"), 0, 0.0)
    found = cache.evidence(g, s) if g.kind is GroupKind.CACHE else evidence.of(g, s)
    if found is not None:
        return _fault(g, found, s)
    taken = worker.evidence(g, s) if g.kind is GroupKind.SERVING else None
    if taken is not None:
        return _bump(g, s, taken, g.record.fails, 0.0)
    if g.record.fails and g.ready_since is not None and s.now - g.ready_since >= Budget().forgive_after_s:
        cause = Cause(Reason.RECOVERED, f"ready for {Budget().forgive_after_s:g} s: the row of faults is over")
        return Action(GroupMove.FORGIVE, g.name, cause, record=replace(g.record, fails=0))
    return None


def _fault(g: GroupView, cause: Cause, s: Snapshot) -> Action:
    if any(s.components[m].drilled for m in g.members):
        return _bump(g, s, cause, g.record.fails, 0.0)
    if cause.text == cache.LOST:
        # the store's doing: no number of times is a reason to do without a cache
        return _bump(g, s, cause, g.record.fails, 0.0)
    if not cause.fault:
        # no member's doing, such as a full disk
        return _bump(g, s, cause, g.record.fails, component.PAUSE_S)
    fails = g.record.fails + 1
    if cause.reason is Reason.CONFIGURATION:
        return _fail(g, cause, fails)
    if fails >= Budget().faults:
        return _fail(g, replace(cause, text=f"{cause.text}; fault {fails} in a row, given up"), fails)
    return _bump(g, s, cause, fails, restart.backoff(fails, s.jitter, restart.RestartPolicy()))


def _judge_stop(g: GroupView, s: Snapshot) -> Action | None:
    blocked = gather.blocked(g, s)
    if blocked is not None:
        return _fail(g, blocked, g.record.fails)
    # this node first: until it is clean hundreds of others need no look
    if s.now < g.learned_at + g.record.backoff_s or gather.here(g, s) or any(gather.lacking(g, s)):
        return None
    mine = s.board.phases(g.name)
    ports = [mine[n].rpc_port for n in g.nodes if n in mine and mine[n].rpc_port is not None]
    record = replace(
        g.record,
        stage=Stage.GO,
        rpc_port=next(iter(ports), None),
        store=s.board.store_id if g.kind is GroupKind.CACHE else "",
        members=g.nodes,
        digest=g.digest,
    )
    return Action(GroupMove.GO, g.name, g.record.cause, record=record)


def _tell(g: GroupView, s: Snapshot) -> Action | None:
    member = phase.own(g, s)
    told = s.board.phases(g.name).get(s.me)
    if told is not None and replace(told, rpc_port=None) == member:
        return None
    # a word of every node to every node would keep the record itself waiting, and most of these pass
    if member.phase in (Phase.STOPPING, Phase.STARTING) and s.now < g.learned_at + INFORM_AFTER_S:
        return None
    return Action(GroupMove.TELL, g.name, g.record.cause, member=member)


def _bump(g: GroupView, s: Snapshot, cause: Cause, fails: int, backoff_s: float) -> Action:
    record = GroupRecord(g.record.n + 1, Stage.STOP, cause, fails, backoff_s, members=g.record.members)
    return Action(GroupMove.BUMP, g.name, cause, record=record, also=coupling.taken_along(g, cause, s))


def _fail(g: GroupView, cause: Cause, fails: int) -> Action:
    record = GroupRecord(g.record.n + 1, Stage.FAILED, cause, fails, members=g.record.members)
    return Action(GroupMove.FAIL, g.name, cause, record=record)
