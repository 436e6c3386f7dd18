"""Who should be behind the router: a table of what is known, and what the router is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import DEATH, ME, RANKS, board, record, serve, snapshot, view
from yrnode.model.board import Board, Intent, Stored
from yrnode.model.group import Member, Phase, Stage
from yrnode.model.routing import Drain, Judged, Role, Route, RouteView, Standing
from yrnode.model.snapshot import Absence, Snapshot
from yrnode.model.state import State
from yrnode.policy import routing

IN, OUT, UNKNOWN = Standing
P = Phase
OWN = Route(RANKS[0], "serve", ME, Role.PREFILL, "http://10.0.0.1:1", (ME, "n1"))
OTHERS = Route("rank/serve/2", "serve", "n1", Role.PREFILL, "http://10.0.0.2:1", (ME, "n1"))
FAR = Route("rank/far/0", "far", "n2", Role.DECODE, "http://10.0.0.3:1", ("n2", "n3"))
"""Of a group that has no rank on the router's node."""


def told(mine: Phase | None = P.READY, others: Phase | None = P.READY, n: int = 4) -> dict[str, Member]:
    return {node: Member(n, p) for node, p in ((ME, mine), ("n1", others)) if p is not None}


def world(
    members: dict[str, Member] | None = None,
    *views: Any,
    stage: Stage = Stage.GO,
    n: int = 4,
    group: dict[str, Any] | None = None,
    **facts: Any,
) -> Snapshot:
    g = serve(record(stage, n), nodes=(ME, "n1"), **(group or {}))
    shared = board(g, told() if members is None else members)
    far = {"n2": Member(7, P.READY), "n3": Member(7, P.READY)}
    shared = replace(
        shared,
        records={**shared.records, "far": Stored(record(Stage.GO, 7), 3)},
        members={**shared.members, "far": facts.pop("far", far)},
    )
    views = views or tuple(view(name, generation=4) for name in RANKS)
    return snapshot(*views, group=g, board=facts.pop("board", shared), **facts)


def own(**facts: Any) -> tuple[Any, ...]:
    return view(RANKS[0], **{"generation": 4, **facts}), view(RANKS[1], generation=4)


def test_a_group_that_is_ready_everywhere_is_in() -> None:
    assert [routing.judge(r, world()).standing for r in (OWN, OTHERS, FAR)] == [IN, IN, IN]
    assert routing.judge(FAR, world()).why == "ready, generation 7"


STOP = {"run": False}
DRAIN = {"drain_s": 60.0}
TABLE: list[tuple[str, Route, Snapshot, Standing, str]] = [
    ("one that starts", OWN, world(None, *own(state=State.STARTING)), OUT, "it is starting"),
    ("one that stops", OWN, world(None, *own(state=State.STOPPING)), OUT, "it is stopping"),
    ("one that ends", OWN, world(None, *own(state=State.STOPPING, leaving=DEATH)), OUT, "stopping: exited"),
    ("one that has stopped", OWN, world(None, *own(state=State.CLEANING, cause=DEATH)), OUT, "cleaning: exited"),
    ("one that starts again", OWN, world(None, *own(state=State.STARTING, leaving=DEATH)), OUT, "it is starting"),
    ("one that died", OWN, world(None, *own(death=DEATH)), OUT, "killed by SIGKILL"),
    ("one that is restarted", OWN, world(None, *own(restart=DEATH)), OUT, "it is to stop"),
    ("one that a check complains of", OWN, world(None, *own(state=State.UNHEALTHY)), IN, "ready"),
    ("an older life", OWN, world(None, *own(generation=3)), OUT, "has come to generation 4"),
    ("a bump", OWN, world(stage=Stage.STOP, n=5), OUT, "to stop and clean, generation 5"),
    ("a bump, of others", OTHERS, world(stage=Stage.STOP, n=5), OUT, "to stop and clean, generation 5"),
    ("given up", OTHERS, world(stage=Stage.FAILED), OUT, "given up"),
    ("others start", OTHERS, world(told(others=P.STARTING)), OUT, "n1 is starting, generation 4"),
    ("others are of an older life", OTHERS, world({**told(), "n1": Member(3, P.READY)}), OUT, "generation 3"),
    ("others start, ours are ready", OWN, world(told(others=P.STARTING)), UNKNOWN, "n1 not known to serve"),
    ("others are absent", OTHERS, world(told(others=None)), UNKNOWN, "n1 is absent"),
    ("others are absent, ours are ready", OWN, world(told(others=None)), UNKNOWN, "n1 not known to serve"),
    (
        "others are absent, and their port is silent",
        OTHERS,
        world(told(others=None), absent={"n1": Absence(0.0, frozenset({"serve"}))}),
        OUT,
        "nothing listens there",
    ),
    (
        "others are absent, and a port of another group is silent",
        OTHERS,
        world(told(others=None), absent={"n1": Absence(0.0, frozenset({"far"}))}),
        UNKNOWN,
        "absent",
    ),
    ("not told yet", OWN, world(told(mine=None)), UNKNOWN, "n0 is absent"),
    ("no record", FAR, world(board=Board(9, "uuid")), OUT, "has not lived yet"),
    ("a store that lost something", OTHERS, world(settled=False), UNKNOWN, "lost something"),
    ("the store is away", OTHERS, world(fresh=False), UNKNOWN, "the store does not answer"),
    ("the store is away, and others had stopped", OTHERS, world(stage=Stage.STOP, fresh=False), UNKNOWN, "store"),
    ("the store is away, and ours died", OWN, world(None, *own(death=DEATH), fresh=False), OUT, "SIGKILL"),
    ("a node is to stop", OWN, world(intents={ME: Intent(1, **STOP, why="upgrade")}), OUT, "n0 is to stop: upgrade"),
    ("another node of its group is to stop", OWN, world(intents={"n1": Intent(1, **STOP)}), OUT, "n1 is to stop"),
    ("its group is to stop", FAR, world(intents={"far": Intent(1, **STOP)}), OUT, "to stop"),
    ("another group is to stop", FAR, world(intents={"serve": Intent(1, **STOP)}), IN, "ready"),
    ("a node is drained", OTHERS, world(intents={ME: Intent(1, **DRAIN, why="w")}), OUT, "n0 is drained: w"),
    (
        "a drain, the store away",
        OWN,
        world(intents={ME: Intent(1, **DRAIN)}, fresh=False),
        OUT,
        "drained",
    ),
    ("a node of another group is drained", FAR, world(intents={ME: Intent(1, **DRAIN)}), IN, "ready"),
    ("a pause", OWN, world(intents={"all": Intent(1, paused=True)}), IN, "ready"),
]


@pytest.mark.parametrize(("route", "s", "standing", "why"), [t[1:] for t in TABLE], ids=[t[0] for t in TABLE])
def test_who_should_be_behind_the_router(route: Route, s: Snapshot, standing: Standing, why: str) -> None:
    found = routing.judge(route, s)
    assert found.standing is standing
    assert why in found.why
    assert routing.judge_all([OWN, OTHERS, FAR], s) == {r.url: routing.judge(r, s) for r in (OWN, OTHERS, FAR)}


# what the router is told


def told_of(
    standing: Standing, listed: bool, restored: set[str] | None = None, gone_s: float | None = None, **more: Any
) -> str:
    member = RouteView(OWN, Judged(standing, "why"), listed=listed, **more)
    gone = {} if gone_s is None else {OWN.url: gone_s}
    found = routing.tell([member], restored, gone)
    assert all(t.cause.component == OWN.rank and t.cause.text == "why" for t in found)
    return ",".join("add" if t.add else "remove" for t in found)


@pytest.mark.parametrize(
    ("standing", "listed", "expected"),
    [
        (IN, False, "add"),
        (IN, True, ""),
        (OUT, True, "remove"),
        (OUT, False, ""),
        (UNKNOWN, True, ""),
        (UNKNOWN, False, ""),
    ],
)
def test_what_is_not_known_changes_nothing(standing: Standing, listed: bool, expected: str) -> None:
    assert told_of(standing, listed) == expected


@pytest.mark.parametrize(
    ("standing", "had", "listed", "expected"),
    [
        (UNKNOWN, True, False, "add"),
        (UNKNOWN, False, True, "remove"),
        (UNKNOWN, True, True, ""),
        (UNKNOWN, False, False, ""),
        (IN, False, False, "add"),
        (OUT, True, True, "remove"),
    ],
)
def test_a_router_that_restarted_gets_back_what_its_predecessor_had(
    standing: Standing, had: bool, listed: bool, expected: str
) -> None:
    assert told_of(standing, listed, {OWN.url} if had else set()) == expected


def test_one_that_its_own_node_took_out_comes_back_after_a_while() -> None:
    assert told_of(IN, False, gone_s=routing.SETTLE_S - 0.1) == ""
    assert told_of(IN, False, gone_s=routing.SETTLE_S) == "add"


def test_one_that_leaves_is_asked_back() -> None:
    assert told_of(IN, True, leaving=True) == "add"
    assert told_of(UNKNOWN, True, leaving=True) == ""
    assert told_of(IN, False, leaving=True) == "add"


# drain


@pytest.mark.parametrize(
    ("drain", "now", "expected"),
    [
        (Drain(0.0, 60.0, out=True, unfinished=0, quiet=2), 3.0, "no request left"),
        (Drain(0.0, 60.0, out=True, unfinished=0, quiet=1), 3.0, ""),
        (Drain(0.0, 60.0, out=False, unfinished=0, quiet=9), 3.0, ""),
        (Drain(0.0, 60.0, out=True, unfinished=3), 59.9, ""),
        (Drain(0.0, 60.0, out=True, unfinished=3), 60.0, "3 requests are not finished"),
        (Drain(0.0, 60.0, out=True, unfinished=None), 60.0, "unknown number of requests"),
        (Drain(0.0, 60.0, out=False, unfinished=0, quiet=9), 60.0, "0 requests"),
    ],
)
def test_when_a_drain_is_over(drain: Drain, now: float, expected: str) -> None:
    found = routing.drained(drain, now)
    assert (expected in found.text) if expected and found is not None else found is None
