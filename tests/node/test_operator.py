"""An operator's word to the node itself, without its processes: what is taken, refused, kept, and told."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from yrnode.components import node as components
from yrnode.config.load import load
from yrnode.model.board import PROTOCOL, Board, Peer
from yrnode.model.errors import NotNow, UsageError
from yrnode.node.draining import Draining
from yrnode.node.supervisor import Supervisor
from yrnode.store.errors import StoreUnavailable

TEXT = """cluster: lab
nodes: {n0: {address: 192.0.2.9}, n1: {address: 192.0.2.1}}
etcd: {nodes: [n0]}
datasystem: {shared_memory: 512MB}
groups:
  serve: {ranks: {n0: 1, n1: 1}, port: 7100, model: m}
state_dir: ./state
run_dir: ./run
log_dir: ./log
"""


class Shared:
    """The shared keys, as far as a word to them goes. `outcome`: of a fence."""

    def __init__(self) -> None:
        self.outcome: bool | Exception = True
        self.fenced: list[str] = []

    def heard(self) -> None:
        pass

    async def fence(self, node: str, by: str, why: str) -> bool:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        self.fenced.append(node)
        return self.outcome

    async def acknowledged(self, target: str, seq: int, seconds: float) -> list[str]:
        return ["n1"]


@pytest.fixture
def node(tmp_path: Path) -> Supervisor:
    file = tmp_path / "cluster.yaml"
    file.write_text(TEXT)
    cluster = load(str(file))
    host = components.host_of(cluster, "n0", os.environ)
    made = Supervisor(cluster, "n0", components.specs(host), "1")
    made._groups.shared = Shared()  # type: ignore[assignment]
    made._world.fresh = True
    return made


@pytest_asyncio.fixture
async def draining(node: Supervisor) -> AsyncIterator[Draining]:
    found = Draining(node._world, node._cluster, None, node.events, node._groups)  # type: ignore[arg-type]
    yield found
    await found.close()


async def say(node: Supervisor, verb: str, target: str) -> dict[str, Any]:
    return await node.control(verb, target, "root", "", dry_run=False)


def told(node: Supervisor) -> list[str]:
    return [e.what for e in node.events.since(0)]


def full(where: Path) -> Path:
    """No wish can be written there: what is written beside is a directory."""
    way = where / "state/.wishes.json.new"
    way.mkdir(parents=True)
    return way


@pytest.mark.parametrize("outcome", [StoreUnavailable("etcd: no answer"), False])
async def test_a_fence_that_the_store_has_not_taken_is_no_event_and_may_be_said_again(
    node: Supervisor, outcome: bool | Exception
) -> None:
    shared: Any = node._groups.shared
    shared.outcome = outcome
    with pytest.raises(NotNow, match="fence n1: "):
        await say(node, "fence", "n1")
    assert told(node) == []
    shared.outcome = True
    assert (await say(node, "fence", "n1"))["done"] is True
    assert (told(node), shared.fenced[-1]) == (["operator-fence"], "n1")


async def test_before_there_are_shared_keys_no_fence_is_taken(node: Supervisor) -> None:
    node._groups.shared = None
    with pytest.raises(NotNow, match="only just begun"):
        await say(node, "fence", "n1")
    assert told(node) == []


async def test_a_fence_of_what_is_up_or_without_a_store_is_for_later_and_an_unknown_node_is_wrong(
    node: Supervisor,
) -> None:
    with pytest.raises(UsageError, match="no node 'n7'"):
        await say(node, "fence", "n7")
    with pytest.raises(UsageError, match="this is n0"):
        await say(node, "fence", "n0")
    node._world.board = replace(Board(), nodes={"n1": Peer("there")})
    with pytest.raises(NotNow, match="n1 is up"):
        await say(node, "fence", "n1")
    node._world.board = Board()
    node._world.fresh = False
    with pytest.raises(NotNow, match="store does not answer"):
        await say(node, "fence", "n1")


@pytest.mark.parametrize(("verb", "target"), [("stop", "worker"), ("stop", "serve"), ("pause", "all")])
async def test_a_word_that_cannot_be_kept_is_obeyed_and_that_is_told(
    node: Supervisor, tmp_path: Path, verb: str, target: str
) -> None:
    way = full(tmp_path)
    answer = await say(node, verb, target)
    assert answer["done"] is True
    assert ".wishes.json.new" in answer["not_kept"]
    world = node._world
    obeyed = {
        "worker": lambda: not world.components["worker"].wanted,
        "serve": lambda: not world.groups["serve"].wanted,
        "all": lambda: world.intents["all"].paused,
    }
    assert obeyed[target]()
    assert told(node) == ["held-up", f"operator-{verb}"]
    # nothing is tried again and again meanwhile
    node._groups.keep_again(0.0)
    way.rmdir()
    node._groups.keep_again(float("inf"))
    kept = json.loads((tmp_path / "state/wishes.json").read_text())
    assert target in {**kept["unwanted"], **kept["intents"]}
    assert (await say(node, "start", "worker"))["not_kept"] == ""


async def test_a_drain_that_cannot_be_kept_is_told_too(node: Supervisor, draining: Draining, tmp_path: Path) -> None:
    full(tmp_path)
    assert ".wishes.json.new" in draining.ask("n0", "root", "", 5.0, dry_run=False)["not_kept"]
    assert node._world.intents["n0"].drain_s == 5.0


async def test_beside_another_protocol_a_drain_is_refused_as_a_stop_is(node: Supervisor, draining: Draining) -> None:
    later = Peer("later", protocol=PROTOCOL + 1)
    node._world.board = replace(Board(), nodes={"n1": later})
    for dry_run in (True, False):
        with pytest.raises(NotNow, match=r"^drain n0: n1 protocol \d+, this node \d+.* say it again then$"):
            draining.ask("n0", "root", "", 5.0, dry_run=dry_run)
        with pytest.raises(NotNow, match=r"^stop n0: n1 protocol"):
            await node.control("stop", "n0", "root", "", dry_run)
    assert (node._world.intents, told(node)) == ({}, [])


async def test_while_it_goes_down_words_are_for_the_next_one(node: Supervisor) -> None:
    node._world.closing = True
    with pytest.raises(NotNow, match="going down"):
        await say(node, "stop", "worker")
    with pytest.raises(NotNow, match="going down"):
        await node.drain("n0", "root", "", 5.0, dry_run=False)


async def test_a_node_is_no_target_of_each_verb(node: Supervisor) -> None:
    with pytest.raises(
        UsageError, match=r"restart n1: a node is not restarted as a whole: stop and start it, .* serve$"
    ):
        await say(node, "restart", "n1")
    for verb in ("pause", "resume"):
        with pytest.raises(UsageError, match=rf"{verb} n0: a node is not {verb}d by itself: {verb} all, .* serve$"):
            await say(node, verb, "n0")
    # what there is, is listed for the verb
    for verb, nodes in (("restart", False), ("pause", False), ("resume", False), ("start", True), ("stop", True)):
        with pytest.raises(UsageError, match="no component or group 'n7'") as caught:
            await say(node, verb, "n7")
        assert str(caught.value).endswith(", n0, n1") is nodes
        assert "there are: all, cache, serve, etcd, " in str(caught.value)


async def test_who_has_not_heard_a_pause_is_named(node: Supervisor) -> None:
    assert (await say(node, "pause", "all"))["absent"] == ["n1"]
