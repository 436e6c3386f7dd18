"""A drill says before what it will restart, does only what fits, and leaves no wish of its own behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.policy.build import DEATH, ME, PLANES, board, record, spec
from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import NotNow, UsageError
from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Move, State
from yrnode.node import drill, operator, world
from yrnode.node.drill import Drills
from yrnode.process import table
from yrnode.process.instance import Instance
from yrnode.telemetry.events import EventLog

RANKS = ["rank/serve/0", "rank/serve/1"]
DECODE = "rank/decode/0"
SAID = Cause(Reason.OPERATOR, "an operator's word")


def made(data: Path, group: bool = False, replicas: int = 1) -> world.World:
    """Node n0, all ready: etcd, a worker, two of the five ranks of `serve`, a rank of `decode`, which restarts with
    it, a router. `group`: ranks restart with their worker."""
    specs: list[ComponentSpec] = [spec(name) for name in PLANES]
    specs[0] = replace(specs[0], data_dir=data, replicas=replicas)
    specs[1] = replace(specs[1], lives_with="cache", takes_groups=group)
    specs.append(replace(spec("rank/serve/0"), name=DECODE, group="decode"))
    places = {
        "serve": world.GroupPlace((ME, "n1", "n2"), coupled=("decode",), ranks=5),
        "decode": world.GroupPlace((ME, "n3"), coupled=("serve",), ranks=3),
        "cache": world.GroupPlace((ME, "n1", "n2", "n3")),
    }
    here = world.make(specs, 0.0, ME, places)
    for name in here.components:
        here.update(name, state=State.READY, instance=f"{name} 1")
    for name in here.groups:
        here.update_group(name, record=record(n=3))
    here.board = board(here.groups["serve"], {}).with_record("decode", record(n=3), 8)
    here.fresh = True
    return here


@pytest.fixture
def here(tmp_path: Path) -> world.World:
    return made(tmp_path / "etcd")


def reach(here: world.World, name: str, target: str) -> dict[str, Any]:
    return drill.reach(here, name, target, 100.0, done=False)


def restarts(told: dict[str, Any], here: world.World) -> set[str]:
    """What a drill must have restarted when it passes."""
    return set(here.components) - set(told["untouched"])


def test_a_ranks_groups_and_who_restarts_with_it(here: world.World) -> None:
    told = reach(here, "kill", "rank/serve/0")
    assert restarts(told, here) == {*RANKS, DECODE}
    assert (told["groups"], told["coupled"], told["ranks"]) == (["serve", "decode"], ["decode"], 8)
    assert told["nodes"] == [ME, "n1", "n2", "n3"]
    assert told["seen_at"] == ["rank/serve/0", "serve"]


def test_a_worker_alone_and_one_that_takes_its_ranks_along(here: world.World, tmp_path: Path) -> None:
    assert restarts(reach(here, "freeze", "worker"), here) == {"worker"}
    told = reach(here := made(tmp_path, group=True), "freeze", "worker")
    assert restarts(told, here) == {"worker", *RANKS, DECODE}
    assert set(told["groups"]) == {"serve", "decode"}


def test_a_group_elsewhere_that_restarts_with_the_ranks_of_a_worker(tmp_path: Path) -> None:
    here = made(tmp_path, group=True)
    del here.components[DECODE], here.groups["decode"]
    for told in (reach(here, "kill", "worker"), reach(here, "store-empty", "etcd")):
        assert [g for g in told["groups"] if g != "cache"] == ["serve", "decode"]
        assert told["coupled"] == ["decode"]
        assert "n3" in told["nodes"]


def test_a_store_that_comes_back_and_one_that_comes_back_empty(here: world.World, tmp_path: Path) -> None:
    told = reach(here, "store-down", "etcd")
    assert (restarts(told, here), told["nodes"], told["seen_at"]) == ({"etcd"}, [ME], ["store"])
    told = reach(here, "store-empty", "etcd")
    assert restarts(told, here) == {"etcd", "worker"}
    assert (told["groups"], told["nodes"], told["seen_at"]) == (["cache"], [ME, "n1", "n2", "n3"], ["cache"])
    here.update("worker", wanted=False, state=State.STOPPED)
    assert restarts(reach(here, "store-empty", "etcd"), here) == {"etcd"}, "what is kept stopped is not started"
    told = reach(here := made(tmp_path, group=True), "store-empty", "etcd")
    assert restarts(told, here) == {"etcd", "worker", *RANKS, DECODE}


def test_one_etcd_of_several_is_no_loss_of_the_store(tmp_path: Path) -> None:
    here = made(tmp_path, replicas=3)
    told = reach(here, "store-empty", "etcd")
    assert (restarts(told, here), told["seen_at"]) == ({"etcd"}, ["etcd"])


class Running:
    """An instance of one real process."""

    def __init__(self, argv: list[str], of: ComponentSpec) -> None:
        self.child = subprocess.Popen(argv)
        self.pid, self.spec = self.child.pid, of
        self.between: Callable[[], object] = lambda: None

    def members(self) -> list[table.Proc]:
        self.between()
        proc = table.read(self.pid)
        return [] if proc is None or proc.state in "ZX" else [proc]

    def close(self) -> None:
        self.child.kill()
        self.child.wait(10)


class Bench:
    """Drills on `here`, with what they told; of `rank/serve/0` runs an engine core that is no stand-in's."""

    def __init__(self, here: world.World, where: Path) -> None:
        core = where / "VLLM::EngineCore"
        shutil.copy("/bin/sleep", core)
        self.here, self.events, self.rounds = here, EventLog(None), 0
        self.running = Running([str(core), "60"], here.components["rank/serve/0"].spec)
        self.drills = Drills(here, self.events, self._instance, self._wake)

    def _instance(self, name: str) -> Instance | None:
        return self.running if name == "rank/serve/0" else None  # type: ignore[return-value]

    def _wake(self) -> None:
        self.rounds += 1

    async def ask(self, name: str, target: str, dry_run: bool = False) -> dict[str, Any]:
        return await self.drills.ask(name, target, "root (uid 0)", "to see", dry_run)

    def told(self) -> list[tuple[str, str, str]]:
        return [(e.target, e.what, e.text) for e in self.events.since(0)]


@pytest.fixture
def bench(here: world.World, tmp_path: Path) -> Iterator[Bench]:
    found = Bench(here, tmp_path)
    yield found
    found.drills.end()
    found.running.close()


async def test_a_fault_is_told_and_is_free(bench: Bench) -> None:
    assert "seq" not in await bench.ask("kill", "rank/serve/0", dry_run=True)
    assert (bench.told(), bench.running.child.poll()) == ([], None)
    told = await bench.ask("kill", "rank/serve/0")
    assert bench.running.child.wait(10) == -9
    assert bench.here.components["rank/serve/0"].drilled
    assert bench.told() == [("rank/serve/0", "drill", "drill kill rank/serve/0 by root (uid 0): to see")]
    assert (told["seq"], told["done"], bench.rounds) == (bench.events.last, True, 1)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("target", ["rank/serve/0", "rank/serve/1"])
async def test_a_refused_drill_tells_nothing_and_the_next_fault_counts(
    bench: Bench, target: str, dry_run: bool
) -> None:
    with pytest.raises((NotNow, UsageError)):
        await bench.ask("spin", target, dry_run)
    bench.here.apply(Action(Move.STOP, target, DEATH), 100.0)
    assert len(bench.here.components[target].history) == 1
    assert (bench.told(), bench.running.child.poll()) == ([], None)


async def test_what_ends_by_itself_meanwhile_is_no_drill(bench: Bench) -> None:
    found = bench.running.members()
    bench.running.close()
    bench.running.members = lambda: found  # type: ignore[method-assign]
    with pytest.raises(NotNow, match="no process of rank/serve/0 is left to kill"):
        await bench.ask("kill", "rank/serve/0")
    assert (bench.told(), bench.here.components["rank/serve/0"].drilled) == ([], False)


async def test_what_stops_while_its_processes_are_read_is_left_alone(bench: Bench) -> None:
    bench.running.between = lambda: bench.here.update("rank/serve/0", state=State.STOPPING)
    with pytest.raises(NotNow, match="stopping"):
        await bench.ask("kill", "rank/serve/0")
    assert bench.running.child.poll() is None


async def test_who_kills_the_daemon_is_noted(bench: Bench) -> None:
    told = await bench.ask("daemon-kill", "yrnode", dry_run=True)
    assert (told["components"], told["nodes"], bench.told()) == ([], [ME], [])
    await bench.ask("daemon-kill", "yrnode")
    assert bench.told() == [("yrnode", "drill", "drill daemon-kill yrnode by root (uid 0): to see")]
    with pytest.raises(UsageError, match="is for yrnode itself"):
        await bench.ask("daemon-kill", "etcd")


async def over(bench: Bench) -> None:
    """The drill's own part of it has ended, in time."""
    task = bench.drills._work
    assert task is not None
    await asyncio.wait({task}, timeout=5)
    assert task.done()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "STORE_DOWN_S", 0.05)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["store-down", "store-empty"])
async def test_a_store_drill_is_no_wish_to_keep(bench: Bench, tmp_path: Path, name: str) -> None:
    here, data = bench.here, tmp_path / "etcd"
    data.mkdir()
    await bench.ask(name, "etcd")
    assert not here.components["etcd"].wanted
    assert operator.stopped_by_wish(here) == {}, "any other word would write it down now"
    here.update("etcd", state=State.STOPPED)
    await over(bench)
    assert here.components["etcd"].wanted
    assert here.components["etcd"].restart is not None
    assert not here.components["etcd"].drilled
    kept = [p.name for p in tmp_path.iterdir() if p.name.startswith("etcd.drill-")]
    assert (data.exists(), len(kept)) == ((True, 0) if name == "store-down" else (False, 1))
    assert not kept or any(kept[0] in text for _, _, text in bench.told())


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("state", [State.STOPPING, State.STOPPED])
async def test_an_operators_stop_meanwhile_wins(bench: Bench, state: State) -> None:
    here = bench.here
    await bench.ask("store-down", "etcd")
    here.update("etcd", state=state)
    await asyncio.sleep(0)
    assert operator.radius(here, "stop", "etcd").components == ("etcd",), "else the word would not be said at all"
    operator.carry_out(here, "stop", "etcd", SAID)
    here.update("etcd", state=State.STOPPED)
    await over(bench)
    assert not here.components["etcd"].wanted
    assert operator.stopped_by_wish(here) == {"etcd": SAID}
    assert operator.radius(here, "stop", "etcd").components == ()


@pytest.mark.usefixtures("at_once")
async def test_an_operators_start_meanwhile_keeps_the_data(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    await bench.ask("store-empty", "etcd")
    operator.carry_out(bench.here, "start", "etcd", SAID)
    bench.here.update("etcd", state=State.STOPPED)
    await over(bench)
    assert (tmp_path / "etcd").exists()
    assert bench.here.components["etcd"].restart is SAID


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("cancelled", [True, False])
async def test_the_end_of_yrnode_ends_a_store_drill(bench: Bench, tmp_path: Path, cancelled: bool) -> None:
    """Also where the word came too late to cancel it."""
    (tmp_path / "etcd").mkdir()
    await bench.ask("store-empty", "etcd")
    if cancelled:
        bench.drills.end()
    operator.shut_down(bench.here)
    for name in bench.here.components:
        bench.here.update(name, state=State.STOPPED)
    await over(bench)
    assert not bench.here.components["etcd"].wanted
    assert (tmp_path / "etcd").exists()
    assert world.at_rest(bench.here.snapshot(0.0))
    assert operator.stopped_by_wish(bench.here) == {}, "a word of another node that comes now is saved with these"


def test_an_operators_stop_outlives_the_end_of_yrnode(here: world.World) -> None:
    operator.carry_out(here, "stop", "worker", SAID)
    operator.shut_down(here)
    assert operator.stopped_by_wish(here) == {"worker": SAID}


async def test_data_that_cannot_be_set_aside_are_told_and_etcd_starts(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").mkdir()

    def busy(*_: object) -> None:
        raise OSError(16, os.strerror(16))

    monkeypatch.setattr(os, "rename", busy)
    await bench.ask("store-empty", "etcd")
    bench.here.update("etcd", state=State.STOPPED)
    await over(bench)
    assert bench.here.components["etcd"].wanted
    assert any("could not be set aside: Device or resource busy" in text for _, _, text in bench.told())


@pytest.mark.parametrize("wish", [{"wanted": False}, {"restart": DEATH}])
async def test_what_is_about_to_stop_is_refused(bench: Bench, wish: dict[str, Any]) -> None:
    """Its state is still ready: a drill would take the operator's wish for its own, and start it again."""
    bench.here.update("etcd", **wish)
    with pytest.raises(NotNow, match="about to stop"):
        await bench.ask("store-down", "etcd")
