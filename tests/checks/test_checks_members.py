"""What a member of etcd is blamed for, and what its quorum is: three real members of which two are ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.checks.conftest import TARGET, tools
from tests.support.etcd import ETCD_35, Etcd, free_ports, start_etcds
from yrnode.checks.base import Tools
from yrnode.checks.etcd import EtcdQuorumCheck, EtcdReadCheck, EtcdWriteCheck
from yrnode.model.member import Kept, Word
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import WAITS, Result, Verdict
from yrnode.store.errors import StoreUnavailable
from yrnode.store.gateway import EtcdGateway
from yrnode.store.members import Members, PeerWord

KEY = "/yrnode/c/store"


def peer(member: Etcd) -> str:
    return next(w for w in member.argv if w.startswith("--listen-peer-urls=")).partition("=")[2]


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Etcd]]:
    with start_etcds(tmp_path_factory.mktemp("trio"), ETCD_35, 3) as found:
        yield found


@pytest_asyncio.fixture
async def members() -> AsyncIterator[Members]:
    found = Members()
    yield found
    await found.close()


@pytest_asyncio.fixture
async def own(trio: list[Etcd], members: Members) -> AsyncIterator[Tools]:
    """What the checks of the first member get."""
    store = EtcdGateway([trio[0].url], timeout_s=2.0)
    yield replace(tools(), own=store, members=members)
    await store.close()


async def soon(ask: Callable[[], Awaitable[Any]], good: Callable[[Any], bool], seconds: float = 30.0) -> Any:
    """The first answer that will do."""
    deadline = time.monotonic() + seconds
    while not good(found := await ask()):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)
    return found


async def quorum(trio: list[Etcd], own: Tools, mine: int = 0) -> Result:
    others = {f"n{i}": peer(m) for i, m in enumerate(trio) if i != mine}
    spec = CheckSpec("quorum", "etcd-quorum", 1.0, 3.0, params={"peer": peer(trio[mine]), "others": others})
    return await EtcdQuorumCheck(spec, own).probe(TARGET)


async def read(trio: list[Etcd], own: Tools, key: str = KEY) -> Result:
    spec = CheckSpec("read", "etcd-read", 1.0, 2.0, params={"key": key, "url": trio[0].url})
    return await EtcdReadCheck(spec, own).probe(TARGET)


async def test_a_quorum_that_is_lost_is_not_the_members_fault(trio: list[Etcd], own: Tools) -> None:
    assert (await quorum(trio, own)).evidence == "3 of 3 members are there"
    assert (await read(trio, own)).verdict is Verdict.OK

    trio[1].kill()
    two = await quorum(trio, own)
    assert (two.verdict, two.evidence) == (Verdict.OK, "2 of 3 members are there, not n1")

    trio[2].freeze()
    try:
        one = await quorum(trio, own)
        assert (one.verdict, one.facts) == (Verdict.FAIL, {WAITS: 1.0})
        assert one.evidence == "waits for n1, n2: no quorum, 1 of 3 members are there"
        found = await read(trio, own)
        assert found.verdict is Verdict.UNKNOWN
        assert "this member answers for itself" in found.evidence

        # a member that is frozen itself is one that fails, quorum or not
        trio[0].freeze()
        try:
            assert (await read(trio, own)).verdict is Verdict.FAIL
            assert (await quorum(trio, own)).verdict is Verdict.UNKNOWN
        finally:
            trio[0].thaw()

        # after a restart its client port serves nobody yet: its peer port does
        trio[0].restart(wait=False)
        lone = await soon(lambda: quorum(trio, own), lambda r: r.verdict is Verdict.FAIL)
        assert lone.facts == {WAITS: 1.0}
        write = CheckSpec("write", "etcd-write", 1.0, 2.0, params={"key": "/yrnode/c/probe/n0"})
        assert (await EtcdWriteCheck(write, own).probe(TARGET)).verdict is Verdict.FAIL
    finally:
        trio[2].thaw()
        trio[1].start(wait=False)
    for member in trio:
        member.wait_ready(40)
    assert (await quorum(trio, own)).verdict is Verdict.OK


async def test_members_of_another_cluster_do_not_count(trio: list[Etcd], own: Tools, tmp_path: Path) -> None:
    client, port = free_ports(2)
    alone = Etcd(tmp_path, ETCD_35, (), client, (port,))
    alone.start()
    try:
        found = await quorum([alone, trio[1], trio[2]], own)
        assert (found.verdict, found.facts) == (Verdict.FAIL, {"strangers": 2.0})
        assert "while n1, n2 are of cluster" in found.evidence
        # one stranger is no majority
        assert (await quorum([trio[0], trio[1], alone], own)).verdict is Verdict.OK
    finally:
        alone.kill()


async def test_the_members_and_their_list(trio: list[Etcd], own: Tools, members: Members) -> None:
    assert own.own is not None
    await own.own.put(KEY, b"uuid")
    living = await members.living("n1", trio[1].url, KEY)
    assert living is not None
    assert (living.node, living.store) == ("n1", "uuid")
    assert {m.name: m.peer_urls for m in living.members} == {f"m{i}": (peer(m),) for i, m in enumerate(trio)}
    ids = {m.name: m.id for m in living.members}
    assert await members.identity(trio[0].url, KEY) == Kept(living.cluster, ids["m0"], "uuid")
    there = await members.at_peer_port(peer(trio[2]))
    assert there is not None
    assert (there.cluster, there.formed) == (living.cluster, True)
    assert set(there.members) == set(living.members)

    async def add() -> int:
        try:
            return await members.add(trio[0].url, "http://127.0.0.1:9")
        except StoreUnavailable as e:
            # for 5 s after a member has come back
            if "unhealthy cluster" in str(e):
                return 0
            raise

    added = await soon(add, bool)
    grown = await members.living("n0", trio[0].url, KEY)
    assert grown is not None
    (new,) = (m for m in grown.members if m.id == added)
    assert (new.started, new.peer_urls) == (False, ("http://127.0.0.1:9",))
    await members.remove(trio[0].url, added)
    again = await members.living("n0", trio[0].url, KEY)
    assert again is not None
    assert set(again.members) == set(living.members)


async def test_a_node_says_what_it_is_until_its_etcd_has_the_port(members: Members) -> None:
    (port,) = free_ports(1)
    where = f"http://127.0.0.1:{port}"
    assert await members.at_peer_port(where) is None
    word = PeerWord("c", "127.0.0.1", port)
    try:
        for said in (Word.FRESH, Word.KNOWS):
            await word.say(said)
            heard = await members.at_peer_port(where)
            assert heard is not None
            assert (heard.word, heard.whose, heard.members, heard.formed) == (said, "c", (), False)
        await word.say(None)
        assert await members.at_peer_port(where) is None
        await word.say(Word.FRESH)
        assert await members.at_peer_port(where) is not None
    finally:
        await word.hush()
    assert await members.at_peer_port(where) is None


async def test_a_member_that_starts_takes_the_word_for_no_list(tmp_path: Path) -> None:
    """It asks every peer for one before it begins a cluster."""
    client, own, other = free_ports(3)
    word = PeerWord("c", "127.0.0.1", other)
    await word.say(Word.FRESH)
    member = Etcd(tmp_path, ETCD_35, (), client, (own, other))
    found = Members()
    try:
        member.start(wait=False)
        port = await soon(lambda: found.at_peer_port(f"http://127.0.0.1:{own}"), lambda p: p is not None)
        assert (len(port.members), port.formed) == (2, False)
        assert member.running
    finally:
        member.kill()
        await word.hush()
        await found.close()
