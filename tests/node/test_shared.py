"""What one node writes to the shared keys of a real etcd, and how it hears of the others."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.agent import GROUP, Agent, until
from tests.support.etcd import ETCD_35, free_port, start_etcd
from yrnode.model.action import Action
from yrnode.model.board import PROTOCOL, Intent, Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, Stage
from yrnode.node import peers, world
from yrnode.policy import trust
from yrnode.store import codec
from yrnode.store.interface import Delete

WHY = Cause(Reason.EXITED, "exited")


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    with start_etcd(tmp_path / "etcd", ETCD_35) as etcd:
        found = Agent("n0", ("n0",), etcd.url, tmp_path)
        await found.start()
        await until("ready", lambda: found.ready and not found.world.groups[GROUP].busy)
        yield found
        await found.close()


async def test_a_swap_compares_what_its_decision_has_seen(agent: Agent) -> None:
    """A record that is read after the decision, and before the transaction is sent, must not be overwritten."""
    shared, board = agent.groups.shared, agent.world.board
    assert shared is not None
    seen = board.records[GROUP]
    bump = replace(seen.record, n=seen.record.n + 1, stage=Stage.STOP, cause=WHY)
    # somebody else has bumped it, and even the life after that has begun
    newer = replace(seen.record, n=seen.record.n + 1, stage=Stage.GO, by="n1")
    revision = await agent.write_record(newer)
    # the watch may have brought it already: the decision is one from before that
    agent.world.board = board
    shared.perform(Action(GroupMove.BUMP, GROUP, WHY, record=bump))
    agent.world.board = board.with_record(GROUP, newer, revision)
    await until("the outcome", lambda: not agent.world.groups[GROUP].busy)
    kv = await agent.store.get(agent.keys.record(GROUP))
    assert kv is not None
    # the very put of the other one: nothing was written over it, to be put back afterwards
    assert kv.mod_revision == revision


async def test_what_is_written_says_who_and_when(agent: Agent) -> None:
    n = agent.life[0]
    agent.restart()
    await until("the next life", lambda: agent.ready and agent.life == (n + 1, "go"))
    record = await agent.read_record()
    assert record.by == "n0"
    assert record.at > 1e9


async def test_beside_another_protocol_no_record_is_written(agent: Agent) -> None:
    other = Peer("later", protocol=PROTOCOL + 1)
    n = agent.life[0]
    await agent.store.put(agent.keys.node("n1"), codec.dump(codec.peer_dict(other)))
    await until("it is seen", lambda: "n1" in agent.world.board.nodes)
    agent.restart()
    # what was read after the wish has had its rounds
    mark = await agent.store.put(agent.keys.intent("n9"), codec.dump(codec.intent_dict(Intent(1))))
    await until("a later key is heeded", lambda: agent.world.board.revision >= mark and "n9" in agent.world.intents)
    assert (await agent.read_record()).n == n
    assert agent.ready
    await agent.store.txn([], [Delete(agent.keys.node("n1"))])
    await until("the next life", lambda: agent.ready and agent.life == (n + 1, "go"))


async def test_a_daemon_that_ends_while_a_store_settles_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_etcd(tmp_path / "etcd", ETCD_35) as etcd:
        for _ in range(2):
            # the first one knows another store, the second one that it had not settled
            agent = Agent("n0", ("n0", "n1"), etcd.url, tmp_path)
            if agent.memory.load_store() == ("", False):
                agent.memory.save_store("another", False)
            await agent.start()
            await until("a look at the store", lambda a=agent: a.world.fresh)
            assert not agent.world.settled
            assert agent.memory.load_store() == ("uuid", True)
            await agent.close(crash=True)
        monkeypatch.setattr(trust, "SETTLE_S", 0.5)
        agent = Agent("n0", ("n0", "n1"), etcd.url, tmp_path)
        await agent.start()
        await until("settled", lambda: agent.world.fresh and agent.world.settled)
        assert agent.memory.load_store() == ("uuid", False)
        await agent.close()


async def test_a_node_that_is_there_or_fenced_already_is_not_fenced(agent: Agent) -> None:
    shared = agent.groups.shared
    assert shared is not None
    assert not await shared.fence("n0", "root", "")
    assert await shared.fence("n9", "root", "")
    assert not await shared.fence("n9", "root", "")


async def test_who_listens() -> None:
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await peers._listens("127.0.0.1", port)
    server.close()
    await server.wait_closed()
    assert not await peers._listens("127.0.0.1", free_port())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL])
async def test_a_socket_that_we_cannot_get_is_no_dead_port(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> None:
        raise OSError(number, "none left")

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    assert await peers._listens("127.0.0.1", free_port())


def test_an_absence_is_counted_anew_after_a_break_of_the_watch() -> None:
    w = world.make([], 0.0, "n0")
    w.peers = ("n0", "n1")
    w.note_absent(10.0, 1.0)
    w.note_absent(15.0, 1.0)
    assert w.absent["n1"].since == 10.0
    # broken and whole again between two rounds: in between anything may have been missed
    w.note_absent(20.0, 18.0)
    assert w.absent["n1"].since == 20.0
    w.note_absent(21.0, None)
    assert w.absent == {}


def test_nodes_that_come_and_go_are_absent_while_they_are_away() -> None:
    w = world.make([], 0.0, "n0")
    w.peers = ("n0", "n1", "n2")
    seen = []
    for now, there in enumerate([("n1", "n2"), ("n2",), ("n2",), (), ("n1", "n2"), ("n1",)]):
        w.board = replace(w.board, nodes={n: Peer(n) for n in there})
        w.note_absent(float(now), 0.0)
        seen.append({n: a.since for n, a in w.absent.items()})
    assert seen == [{}, {"n1": 1.0}, {"n1": 1.0}, {"n1": 1.0, "n2": 3.0}, {}, {"n2": 5.0}]
