"""Small snapshots for the tables: one node with etcd, worker, two ranks and a router."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally, fail, ok

GATE = CheckSpec("gate", "http", 1.0, 1.0, gate=True)
ACTS = CheckSpec("acts", "http", 1.0, 1.0)
OBSERVES = CheckSpec("observes", "http", 1.0, 1.0, act=False)
START_TIMEOUT_S = 60.0
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
    """All components ready and the store available, but for what is given. `now` is 100 s."""
    components = {name: view(name) for name in PLANES} | {v.name: v for v in views}
    group = group or GroupView("serve", record(), RANKS)
    return replace(Snapshot(100.0, 0.0, components, {"serve": group}, store_available=True), **facts)


def serve(record: GroupRecord, **facts: Any) -> GroupView:
    return replace(GroupView("serve", record, RANKS), **facts)
