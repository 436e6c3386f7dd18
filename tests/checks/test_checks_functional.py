"""`verify`: every rank of a group gets a long prompt that another has had before."""

from __future__ import annotations

import pytest

from tests.checks.test_checks_retrieval import LONG, Servers
from tests.checks.test_checks_retrieval import servers as servers  # noqa: PLC0414  a fixture
from yrnode.checks import functional
from yrnode.checks.functional import RankTarget, Report, verify

LOST = "requests with external hits do not finish, short ones do"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "LONG_S", 0.3)
    monkeypatch.setattr(functional, "_PAUSES_S", (0.01, 0.01, 0.01))


async def verified(servers: Servers, *names: str, external: bool = True) -> Report:
    return await verify([RankTarget(n, "serve", f"{servers.url}/{n}", "m", "", external, LONG) for n in names])


async def test_every_rank_hits_what_another_has_stored(servers: Servers) -> None:
    report = await verified(servers, "a", "b", "c", "d")
    assert report.good
    assert {r.name: r.external_hits for r in report.ranks} == dict.fromkeys("abcd", LONG)


@pytest.mark.parametrize("dead", ["a", "b", "d"])
async def test_one_dead_link_of_four(servers: Servers, dead: str) -> None:
    servers.dead.add(dead)
    report = await verified(servers, "a", "b", "c", "d")
    assert not report.good
    assert {r.name: r.completion for r in report.ranks} == {**dict.fromkeys("abcd", "ok"), dead: LOST}


async def test_all_links_dead(servers: Servers) -> None:
    servers.dead |= {"a", "b"}
    report = await verified(servers, "a", "b")
    assert [r.completion for r in report.ranks] == [LOST, LOST]


async def test_a_rank_alone_and_one_without_a_cache(servers: Servers) -> None:
    assert (await verified(servers, "a")).good
    report = await verified(servers, "b", "c", external=False)
    assert (report.good, report.external_hits) == (True, "not configured")


async def test_a_small_model_gets_a_shorter_prompt(servers: Servers) -> None:
    servers.longest = 100
    report = await verified(servers, "a", "b")
    assert report.good
    assert report.external_hits == 160


async def test_a_rank_that_answers_nothing(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "TIMEOUT_S", 0.5)
    servers.frozen.add("b")
    report = await verified(servers, "a", "b", "c")
    assert [r.completion for r in report.ranks] == ["ok", "not asked", "ok"]
