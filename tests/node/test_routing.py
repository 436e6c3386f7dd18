"""The router's members, look by look: a router that does what a test says, and no processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from yrnode.components import node as components
from yrnode.components.routers.base import RouterClient, RouterError
from yrnode.config.load import load
from yrnode.model.routing import Judged, Route, Standing
from yrnode.model.state import State
from yrnode.node import routing, world
from yrnode.node.routing import Routing
from yrnode.telemetry.events import EventLog

TEXT = """
cluster: c
nodes: {n0: {address: 127.0.0.1}}
groups:
  p: {ranks: {n0: 1}, model: m, port: 6600}
  d: {ranks: {n0: 1}, model: m, port: 6700, devices: {n0: [1]}}
router: {node: n0, port: 8000, kind: vllm-router, prefill: p, decode: d}
"""
P, D = "http://127.0.0.1:6600", "http://127.0.0.1:6700"
IN, OUT, UNKNOWN = Standing


class Fake:
    """`has`: what it lists. `aside`: it lists what it is told to drop. `takes`: it adds. `error`: it refuses."""

    def __init__(self) -> None:
        self.has: set[str] = set()
        self.aside = False
        self.takes = True
        self.error = ""
        self.asked: list[str] = []

    async def listed(self, timeout_s: float) -> frozenset[str]:
        await self._ask("list")
        return frozenset(self.has)

    async def add(self, route: Route, timeout_s: float) -> None:
        await self._ask(f"+{route.group}")
        if self.takes:
            self.has.add(route.url)

    async def remove(self, route: Route, timeout_s: float) -> None:
        await self._ask(f"-{route.group}")
        if not self.aside:
            self.has.discard(route.url)

    async def _ask(self, what: str) -> None:
        await asyncio.sleep(0)
        if what != "list":
            self.asked.append(what)
        if self.error:
            raise RouterError(self.error)

    def since(self) -> str:
        """What was asked since the last call."""
        found, self.asked = sorted(self.asked), []
        return " ".join(found)


class Lab:
    """One `Routing` without its task: `look` is one comparison."""

    def __init__(self, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = where / "cluster.yaml"
        config.write_text(TEXT)
        self.cluster = load(config)
        self.router = Fake()
        self.client: RouterClient | None = self.router
        monkeypatch.setattr(routing, "client_of", lambda *_: self.client)
        monkeypatch.setattr(routing, "Draining", lambda *_: None)
        monkeypatch.setattr(Routing, "_begin", lambda _, work, __: work.close())
        specs = components.specs(components.host_of(self.cluster, "n0", {"PATH": "/bin"}))
        self.world = world.make(specs, 0.0, "n0")
        self.events = EventLog(where / "events.jsonl")
        self.start()

    def start(self) -> None:
        """What an earlier yrnode knew is forgotten."""
        http: Any = None
        groups: Any = None
        self.routing = Routing(self.world, self.cluster, http, self.events, {}, groups)

    def up(self, instance: str, state: State = State.READY) -> None:
        self.world.update("router", state=state, instance=instance, ready_at=1.0)

    async def look(self, **standing: Standing) -> str:
        """What the router was asked; `p` and `d` as they are judged now."""
        self.judge(**{name: Judged(found, f"is {found.value}") for name, found in standing.items()})
        await self.routing._keep(self.router)
        return self.router.since()

    def judge(self, **judged: Judged) -> None:
        urls = {"p": P, "d": D}
        self.routing._learn({**self.routing._judged, **{urls[name]: found for name, found in judged.items()}})

    def told(self) -> list[str]:
        """Events so far."""
        return [f"{e.what} {e.target}" for e in self.events.since(0)]

    def shown(self) -> dict[str, str]:
        assert self.world.router is not None
        members = self.world.router.members
        return {m.route.group: "in" if m.serves else "leaving" if m.listed else "out" for m in members.values()}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


async def test_in_and_out(lab: Lab) -> None:
    assert await lab.look(p=IN, d=OUT) == ""
    assert lab.world.router is not None
    assert lab.world.router.error == "the router is stopped"
    lab.up("i1", State.STARTING)
    assert await lab.look() == "+p"
    assert await lab.look(d=IN) == "+d"
    assert await lab.look(p=OUT) == "-p"
    assert await lab.look(p=OUT) == ""
    assert lab.told() == ["member-in rank/p/0", "member-in rank/d/0", "member-out rank/p/0"]
    assert lab.shown() == {"p": "out", "d": "in"}


async def test_why_it_is_out_is_what_spoke_against_it_first(lab: Lab) -> None:
    lab.up("i1")
    await lab.look(p=IN, d=IN)
    await lab.look()
    for why in ("killed by SIGKILL", "it is starting"):
        lab.judge(p=Judged(OUT, why))
    assert await lab.look() == "-p"
    await lab.look()
    assert [e.text for e in lab.events.since(0)][-1] == "out of the router: killed by SIGKILL"
    assert await lab.look(p=IN) == "+p"
    await lab.look()
    lab.judge(p=Judged(OUT, "it is to stop"))
    await lab.look()
    await lab.look()
    assert [e.text for e in lab.events.since(0)][-1] == "out of the router: it is to stop"


async def test_a_strange_server_is_left_alone_and_shown(lab: Lab) -> None:
    lab.up("i1")
    lab.router.has = {"http://10.9.9.9:1"}
    assert await lab.look(p=IN, d=OUT) == "+p"
    await lab.look()
    assert lab.world.router is not None
    assert lab.world.router.others == ("http://10.9.9.9:1",)


async def test_what_its_own_node_took_out_is_not_put_back_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.up("i1")
    await lab.look(p=IN, d=IN)
    await lab.look()
    lab.router.has.discard(D)
    assert await lab.look() == ""
    assert lab.told()[-1] == "member-out rank/d/0"
    monkeypatch.setattr("yrnode.policy.routing.SETTLE_S", 0.0)
    assert await lab.look() == "+d"


async def test_what_was_out_for_a_cause_is_back_as_soon_as_that_has_passed(lab: Lab) -> None:
    lab.up("i1")
    await lab.look(p=IN, d=IN)
    await lab.look()
    lab.router.has.discard(D)
    assert await lab.look(d=OUT) == ""
    assert await lab.look(d=IN) == "+d"


async def test_another_router_gets_what_is_known_and_what_was(lab: Lab) -> None:
    lab.up("i1")
    await lab.look(p=IN, d=IN)
    await lab.look()
    lab.router.has = set()
    lab.up("i2")
    assert await lab.look(p=UNKNOWN, d=IN) == "+d +p"
    await lab.look()
    assert lab.told()[2:] == ["member-in rank/p/0", "member-in rank/d/0"]
    # one that begins with everybody, as the sample proxy
    await lab.look(p=OUT)
    await lab.look(p=UNKNOWN)
    lab.router.has = {P, D}
    lab.up("i3")
    assert await lab.look() == "-p"


async def test_another_yrnode_changes_nothing_it_does_not_know(lab: Lab) -> None:
    lab.router.has = {P}
    lab.up("i1")
    assert await lab.look(p=UNKNOWN, d=UNKNOWN) == ""
    assert lab.shown() == {"p": "in", "d": "out"}
    # it has been in since before
    assert lab.told() == []


async def test_the_same_word_is_not_said_again_and_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.up("i1")
    lab.router.takes = False
    assert await lab.look(p=IN, d=OUT) == "+p"
    assert [await lab.look() for _ in range(3)] == ["", "", ""]
    now = [1e6]
    monkeypatch.setattr(routing.time, "monotonic", lambda: now[0])
    pauses = []
    for _ in range(8):
        assert await lab.look() == "+p"
        said = lab.routing._said[P, True]
        pauses.append(said.pause_s)
        now[0] = said.until
    assert pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


async def test_a_router_that_refuses_is_told_of(lab: Lab) -> None:
    lab.up("i1")
    lab.router.error = "no answer within 2 s"
    assert await lab.look(p=IN, d=IN) == ""
    assert lab.world.router is not None
    assert lab.world.router.error == "no answer within 2 s"
    lab.router.error = ""
    assert await lab.look() == "+d +p"
    await lab.look()
    assert lab.world.router.error == ""


async def test_one_that_is_set_aside_is_asked_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.up("i1")
    await lab.look(p=IN, d=IN)
    await lab.look()
    lab.router.aside = True
    assert await lab.look(d=OUT) == "-d"
    assert lab.shown()["d"] == "leaving"
    await lab.look()
    assert lab.told()[-1] == "member-out rank/d/0"
    assert await lab.look(d=IN) == "+d"
    assert lab.shown()["d"] == "leaving"
    # dropped at last, by a router that does not take back what leaves: that was ours, and it comes in at once
    lab.router.has.discard(D)
    lab.routing._said.clear()
    assert await lab.look() == "+d"
    await lab.look()
    assert lab.shown()["d"] == "in"
    # and by one that keeps it
    await lab.look(d=OUT)
    assert await lab.look(d=IN) == "+d"
    monkeypatch.setattr(routing, "KEPT_S", 0.0)
    await lab.look()
    assert lab.shown()["d"] == "in"
    assert lab.told()[-1] == "member-in rank/d/0"


async def test_a_command_of_the_users_own_is_told_nothing(lab: Lab) -> None:
    lab.client = None
    lab.start()
    assert lab.world.router is not None
    assert "yrnode cannot tell it" in lab.world.router.error


async def test_the_look_of_a_round_judges_every_server(lab: Lab) -> None:
    lab.routing.look(lab.world.snapshot(1.0))
    assert {j.standing for j in lab.routing._judged.values()} == {OUT}
    assert lab.routing._due.is_set()
    lab.routing._due.clear()
    lab.routing.look(lab.world.snapshot(2.0))
    assert not lab.routing._due.is_set(), "nothing has changed"
