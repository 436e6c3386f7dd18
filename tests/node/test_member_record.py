"""What etcd's member is part of is asked for as often as it can change."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tests.support.node import cluster_text
from yrnode.config.load import load
from yrnode.model.board import Board
from yrnode.model.member import Kept
from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Plane, State
from yrnode.node import world
from yrnode.node.members import RECORD, Membership
from yrnode.process import atomic
from yrnode.store.members import Members
from yrnode.telemetry.events import EventLog


class _Asked:
    """A member that says each time what it is part of."""

    def __init__(self) -> None:
        self.now: Kept | None = Kept(1, 2, "s1")
        self.times = 0

    async def identity(self, url: str, key: str) -> Kept | None:
        self.times += 1
        return self.now


async def test_a_member_that_runs_is_asked_once_what_it_is_part_of(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster_text(ranks=1))
    spec = ComponentSpec("etcd", "etcd", Plane.STORE, (), {}, Path(), Path())
    w = world.make([spec], 0.0)
    member, ask = Membership(load(file), "n0", w, EventLog(tmp_path / "events.jsonl"), lambda: None), _Asked()
    asks, member._members = member._members, cast(Members, ask)
    (tmp_path / "state").mkdir()

    async def asked(**facts: object) -> int:
        before = ask.times
        w.update("etcd", **facts)
        for _ in range(3):
            await member.remember()
        return ask.times - before

    try:
        assert await asked(instance="i1") == 0, "not ready"
        assert await asked(state=State.READY) == 3, "what the store is called is not known yet"
        w.board = Board(store_id="s1")
        assert await asked() == 1
        assert await asked(instance="i2") == 1, "another start"
        w.board, ask.now = Board(store_id="s2"), None
        assert await asked() == 3, "no answer"
        ask.now = Kept(1, 2, "s2")
        assert await asked() == 1, "another store"
        assert atomic.read(tmp_path / "state" / RECORD) == {"cluster": 1, "member": 2, "store": "s2"}
    finally:
        await asks.close()
        await member._own.close()
