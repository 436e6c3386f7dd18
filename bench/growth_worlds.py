"""Made-up worlds of any size, and the pure work of one node's round on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from yrnode.model.board import Board, Peer, Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Member, Phase, Stage
from yrnode.model.routing import Role, Route
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally, ok
from yrnode.node import world
from yrnode.node.world import World
from yrnode.policy import phase, routing
from yrnode.policy.plan import decide, next_look
from yrnode.store import board, codec
from yrnode.store.interface import Event, KeyValue
from yrnode.store.keys import ClusterKeys

GROUP, ME, NOW = "serve", "n0", 1000.0
CHECKS = tuple(CheckSpec(name, "x", 1.0, 1.0, gate=name == "gate") for name in ("gate", "canary", "health"))
PASSED = {c.name: Tally(ok("fine"), successes=1, passed=True, at=NOW) for c in CHECKS}
KEYS = ClusterKeys("growth")
STAGES = ("quiet", "stopping", "gathering", "clean", "starting")
"""Nothing happens; all ranks of a life that is over are ended; all but one node are clean; all are; all start."""


def make(stage: str, ranks: int = 1, nodes: int = 1, name: Callable[[str], str] = str) -> World:
    """This node's world: etcd, a worker and so many ranks of one group, which lives on so many nodes, each called
    what `name` makes of n0, n1, …"""
    names = tuple(name(f"n{i}") for i in range(nodes))
    specs = [_spec("etcd", Plane.STORE), _spec("worker", Plane.CACHE)]
    specs += [_spec(f"rank/{GROUP}/{i}", Plane.ENGINE, GROUP) for i in range(ranks)]
    w = world.make(specs, NOW, ME, {GROUP: world.GroupPlace(names)})
    over = stage in ("stopping", "gathering", "clean")
    record = GroupRecord(8 if over else 7, Stage.STOP if over else Stage.GO, Cause(Reason.START, "x"), members=names)
    started = 6 if stage in ("gathering", "clean") else 7
    w.update_group(GROUP, record=record, started=started, cleaned=record.n, learned_at=NOW - 50)
    of_rank = {"gathering": State.CLEANING, "clean": State.CLEANING, "starting": State.STARTING}
    for c in list(w.components.values()):
        state = of_rank.get(stage, State.READY) if c.spec.group else State.READY
        facts: dict[str, object] = {"state": state, "instance": "i", "pid": 1, "generation": 7, "checks": PASSED}
        if state is State.CLEANING:
            facts |= {"instance": "", "pid": None, "cleaned": True}
        if state is State.STARTING:
            facts |= {"checks": {name: Tally() for name in PASSED}, "deadline": NOW + 60}
        w.update(c.name, ready_at=NOW - 20 if state is State.READY else None, **facts)
    w.store_available = w.fresh = True
    told = Phase.CLEAN if over else Phase.READY
    members = {n: Member(record.n, told) for n in names}
    # the last one of them is late: all before it must be looked at
    if stage in ("stopping", "gathering"):
        members[names[-1]] = Member(record.n, Phase.STOPPING)
    peers = {n: Peer("i", digests={GROUP: ""}) for n in names}
    w.board = Board(9, "uuid", {GROUP: Stored(record, 5)}, {GROUP: members}, nodes=peers)
    own = phase.own(w.groups[GROUP], w.snapshot(NOW))
    w.board = w.board.with_member(GROUP, ME, own)
    return w


def _spec(name: str, plane: Plane, group: str | None = None) -> ComponentSpec:
    here = Path("/growth")
    return ComponentSpec(name, name.partition("/")[0], plane, (), {}, here, here, group=group, checks=CHECKS)


def round_of(w: World) -> Callable[[], object]:
    """What the loop does each time, without what it then carries out."""

    def one() -> object:
        s = w.snapshot(NOW, 0.5)
        return decide(s), next_look(s)

    return one


def one_word(w: World) -> Callable[[], object]:
    """What another node's word about its part costs this one: read, folded into the board, taken to heart."""
    node = f"n{len(w.groups[GROUP].nodes) - 1}"
    member = replace(w.board.members[GROUP][node], evidence="x")
    value = codec.dump(codec.member_dict(member))
    event = Event(KEYS.member(GROUP, node), 10, KeyValue(KEYS.member(GROUP, node), value, 9, 10, 2))
    w.update_group(GROUP, ready_since=None)
    before = w.board

    def one() -> object:
        w.take_board(board.fold(before, [event], KEYS), NOW)
        return w.note_absent(NOW, 0.0)

    return one


def routing_of(w: World) -> Callable[[], object]:
    """What the router's own node judges in each round: every server of every node."""
    names, s = w.groups[GROUP].nodes, w.snapshot(NOW)
    ranks = {n: f"rank/{GROUP}/{i}" for i, n in enumerate(names)}
    routes = [Route(ranks[n], GROUP, n, Role.REGULAR, f"http://{n}", names) for n in names]
    return lambda: routing.judge_all(routes, s)


def board_bytes(w: World) -> int:
    """What the keys of such a cluster take in the store, in bytes: each is read by every node once."""
    peers = sum(len(json.dumps({"instance": p.instance, "digests": dict(p.digests)})) for p in w.board.nodes.values())
    return peers + sum(len(codec.dump(codec.member_dict(m))) for m in w.board.phases(GROUP).values())
