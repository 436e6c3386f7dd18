"""A node that only says what a test tells it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import UsageError
from yrnode.model.group import GroupRecord, Stage
from yrnode.model.identity import Identity
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally, fail, ok
from yrnode.telemetry.events import EventLog
from yrnode.telemetry.metrics import Metrics

START = Cause(Reason.START, "first start")
PROVEN = Cause(Reason.PROVEN, "proven by health")
OK = Tally(replace(ok("200"), took_s=0.25), at=990.0, successes=3, passed=True)
BAD = Tally(fail("HTTP 503"), at=999.0, failures=3, failing=True, passed=True)


def spec(name: str, plane: Plane, group: str | None = None) -> ComponentSpec:
    checks = (CheckSpec("health", "http", 1.0, 1.0, gate=True),)
    return ComponentSpec(
        name, name.split("/", maxsplit=1)[0], plane, (), {}, Path("/"), Path("/"), group=group, checks=checks
    )


def view(name: str, plane: Plane, state: State = State.READY, **more: Any) -> ComponentView:
    group = name.split("/")[1] if name.startswith("rank/") else None
    values: dict[str, Any] = {"cause": PROVEN, "checks": {"health": OK}, "since": 900.0, **more}
    return ComponentView(spec(name, plane, group), state, **values)


def snapshot(*changed: ComponentView, record: GroupRecord | None = None, **more: Any) -> Snapshot:
    """A node on which all is ready at monotonic 1000, but for `changed`."""
    whole = {
        c.name: c
        for c in (
            view("etcd", Plane.STORE, pid=11, instance="e1"),
            view("worker", Plane.CACHE, pid=12, instance="w1"),
            view("rank/serve/0", Plane.ENGINE, pid=13, instance="r1", generation=1),
            view("router", Plane.ROUTER, pid=14, instance="p1"),
        )
    }
    whole.update({c.name: c for c in changed})
    members = tuple(name for name in whole if name.startswith("rank/serve/"))
    group = GroupView("serve", record or GroupRecord(1, Stage.GO, START), members, nodes=("n0",), learned_at=1000.0)
    values: dict[str, Any] = {"store_available": True, "store_since": 940.0, "me": "n0", "fresh": True, **more}
    return Snapshot(1000.0, 0.0, whole, {"serve": group}, **values)


class FakeNode:
    """`state` is what `snapshot()` returns; `asked` collects what control was asked for."""

    def __init__(self, where: Path) -> None:
        self.identity = Identity("n0", "lab", "9.9.9", time.time() - 3700)
        self.state = snapshot()
        self.beating = True
        self.asked: list[tuple[str, str, str, str]] = []
        self.events = EventLog(where / "events.jsonl")
        self.metrics = Metrics("n0", "9.9.9", self.snapshot)
        self.logs = {"etcd": [where / "etcd.log.1", where / "etcd.log"]}

    def snapshot(self) -> Snapshot:
        return self.state

    def alive(self) -> bool:
        return self.beating

    def log_paths(self, name: str) -> list[Path]:
        if name not in self.logs:
            raise UsageError(f'there is no component "{name}"; there are {", ".join(self.state.components)}')
        return self.logs[name]

    async def drain(self, target: str, who: str, why: str, seconds: float, dry_run: bool) -> dict[str, Any]:
        await asyncio.sleep(0)
        if target != "n0":
            raise UsageError(f"drain {target}: this is n0")
        if not dry_run:
            self.asked.append(("drain", target, f"{seconds:g}", why))
        return {"verb": "drain", "target": target, "components": ["rank/serve/0"], "done": not dry_run}

    async def control(self, verb: str, target: str, who: str, why: str, dry_run: bool) -> dict[str, Any]:
        await asyncio.sleep(0)
        if target not in ("worker", "idle"):
            raise UsageError(f'there is no component or group "{target}"')
        if not dry_run:
            self.asked.append((verb, target, who, why))
        names = ["worker", "rank/serve/0"] if target == "worker" else []
        left = [n for n in self.state.components if n not in names]
        return {"verb": verb, "target": target, "components": names, "untouched": left, "done": not dry_run}

    async def drill(self, drill: str, target: str, who: str, why: str, dry_run: bool) -> dict[str, Any]:
        await asyncio.sleep(0)
        if target not in (*self.state.components, "yrnode"):
            raise UsageError(f'there is no component "{target}"')
        told = {"verb": "drill", "drill": drill, "target": target, "seen_at": [target], "done": not dry_run}
        names = [] if target == "yrnode" else [target]
        told |= {"components": names, "untouched": [n for n in self.state.components if n not in names]}
        if dry_run:
            return told
        self.asked.append((f"drill-{drill}", target, who, why))
        return {**told, "seq": self.events.emit(target, "drill", Cause(Reason.OPERATOR, drill)).seq}
