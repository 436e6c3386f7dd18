"""Small snapshots for the tables: one node with etcd, worker, two ranks and a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from yrnode.model.board import Board, Peer, Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Member, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally, fail, ok
from yrnode.policy import phase

GATE = CheckSpec("gate", "http", 1.0, 1.0, gate=True)
ACTS = CheckSpec("acts", "http", 1.0, 1.0)
OBSERVES = CheckSpec("observes", "http", 1.0, 1.0, act=False)
START_TIMEOUT_S = 60.0
ME = "n0"
PASSED = Tally(ok("fine"), successes=1, passed=True)
FAILING = Tally(fail("HTTP 503"), failures=3, failing=True, passed=True)
PLANES = {
    "etcd": Plane.STORE,
    "worker": Plane.CACHE,
    "rank/serve/0": Plane.ENGINE,
    "rank/serve/1": Plane.ENGINE,
    "router": Plane.ROUTER,
}
RANKS = ("rank/serve/0", "rank/serve/1")
DEATH = Cause(Reason.EXITED, "exited: killed by SIGKILL")


def spec(name: str) -> ComponentSpec:
    group = "serve" if name.startswith("rank/") else None
    return ComponentSpec(
        name,
        name.split("/", maxsplit=1)[0],
        PLANES[name],
        ("true",),
        {},
        Path("/state") / name,
        Path("/log") / name,
        group=group,
        start_timeout_s=START_TIMEOUT_S,
        checks=(GATE, ACTS, OBSERVES),
    )


def view(name: str, state: State = State.READY, **facts: Any) -> ComponentView:
    """A component that is in order in this state, and then as `facts` say."""
    checks = {"gate": PASSED, "acts": PASSED, "observes": PASSED}
    if state is State.STARTING:
        checks = {name: Tally() for name in checks}
    base = ComponentView(
        spec(name),
        state,
        0.0,
        instance="i1",
        generation=1,
        pid=10,
        checks=checks | facts.pop("checks", {}),
        ready_at=0.0 if state in (State.READY, State.UNHEALTHY) else None,
    )
    return replace(base, **facts)


def record(stage: Stage = Stage.GO, n: int = 1, **facts: Any) -> GroupRecord:
    return replace(GroupRecord(n, stage, Cause(Reason.START, "first start")), **facts)


def snapshot(*views: ComponentView, group: GroupView | None = None, **facts: Any) -> Snapshot:
    """All components ready and the store available, but for what is given. `now` is 100 s. The store holds what the
    node keeps, and what the node would tell is told."""
    components = {name: view(name) for name in PLANES} | {v.name: v for v in views}
    group = group or serve(record())
    s = Snapshot(100.0, 0.0, components, {"serve": group}, True, 0.0, me=ME, fresh=True)
    s = replace(s, **facts)
    if "board" not in facts:
        s = replace(s, board=board(group, {ME: phase.own(group, s)}))
    return s


def board(group: GroupView, told: Mapping[str, Member], **facts: Any) -> Board:
    """The shared keys of one group that are as this node keeps them."""
    records = {group.name: Stored(group.record, 7)}
    return replace(Board(9, "uuid", records, {group.name: dict(told)}, nodes={ME: Peer("i")}), **facts)


def serve(record: GroupRecord, **facts: Any) -> GroupView:
    """The group of the two ranks, on this node alone."""
    begun = record.n if record.stage is Stage.GO else record.n - 1
    base = GroupView(
        "serve",
        record,
        RANKS,
        nodes=(ME,),
        learned_at=100.0,
        started=begun,
        cleaned=record.n,
    )
    return replace(base, **facts)
