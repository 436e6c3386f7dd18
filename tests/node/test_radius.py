"""What an operator's word will touch is said before: here, on other nodes, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import ME, PLANES, board, record, spec
from yrnode.cli.control import lines
from yrnode.model.starts import Starts
from yrnode.model.state import State
from yrnode.node import operator, world
from yrnode.node.radius import told

TIMES = {"etcd": 2.0, "worker": 6.0, "rank/serve/0": 100.0, "rank/serve/1": 110.0}


@pytest.fixture
def here() -> world.World:
    """Two of the group's five ranks are here; all is ready. `decode`, three ranks elsewhere, restarts with it."""
    places = {
        "serve": world.GroupPlace((ME, "n1", "n2"), coupled=("decode",), ranks=5),
        "decode": world.GroupPlace(("n3",), coupled=("serve",), ranks=3),
    }
    made = world.make([spec(name) for name in PLANES], 0.0, ME, places)
    for name in PLANES:
        made.update(name, state=State.READY)
    made.update_group("serve", record=record(n=3))
    made.board = board(made.groups["serve"], {}).with_record("decode", record(n=5), 8)
    made.fresh = True
    made.starts = Starts(TIMES, {"serve": 130.0})
    return made


def radius(here: world.World, verb: str, target: str) -> dict[str, Any]:
    return told(here, verb, target, operator.asked(here, verb, target), 100.0, done=False)


def said(here: world.World, verb: str, target: str) -> list[str]:
    return lines(radius(here, verb, target))


def test_a_group_on_all_its_nodes_with_those_that_restart_with_it(here: world.World) -> None:
    found = radius(here, "restart", "serve")
    assert set(found["components"]) == {"rank/serve/0", "rank/serve/1"}
    assert found["groups"] == ["serve", "decode"]
    assert found["nodes"] == [ME, "n1", "n2", "n3"]
    assert found["ranks"] == 8
    assert found["usual_s"] == 130.0
    assert lines(found) == [
        "restart serve: restarts rank/serve/0, rank/serve/1; restarts with it: decode; leaves etcd, worker, router",
        "  in all: 8 ranks of serve, decode, on n0, n1, n2, n3",
        "  until it is ready: usually 2m10s, after the stop",
    ]


def test_a_rank_is_its_group(here: world.World) -> None:
    assert radius(here, "stop", "rank/serve/0")["ranks"] == 5
    assert said(here, "stop", "rank/serve/0")[1] == "  in all: 5 ranks of serve, on n0, n1, n2"


def test_a_single_component(here: world.World) -> None:
    assert said(here, "restart", "worker") == [
        "restart worker: restarts worker; leaves etcd, rank/serve/0, rank/serve/1, router",
        "  until it is ready: usually 6s, after the stop",
    ]
    assert said(here, "restart", "router")[-1] == (
        "  until it is ready: not known, it has not been seen to start here yet"
    )
    assert len(said(here, "stop", "worker")) == 1, "a stop takes no start"
    assert said(here, "start", "worker") == ["start worker: nothing to do"]


def test_a_worker_that_takes_its_ranks_along(here: world.World) -> None:
    here.update("worker", spec=replace(spec("worker"), takes_groups=True))
    found = radius(here, "restart", "worker")
    assert (found["groups"], found["ranks"], found["usual_s"]) == (["serve", "decode"], 8, 136.0)
    assert found["coupled"] == ["decode"], "which the ranks take along"
    assert radius(here, "start", "worker")["groups"] == radius(here, "stop", "worker")["groups"] == []


def test_a_pause_is_of_all_nodes(here: world.World) -> None:
    assert said(here, "pause", "all") == [
        "pause all: nothing is started, stopped or healed on its own, until yrnode resume; what runs goes on",
        "  in all: 8 ranks of serve, decode, on n0, n1, n2",
    ]
    assert said(here, "pause", "serve")[1] == "  in all: 5 ranks of serve, on n0, n1, n2"
    assert len(said(here, "pause", "worker")) == 1


def test_a_resume_names_what_it_may_act_on(here: world.World) -> None:
    here.update("worker", state=State.UNHEALTHY)
    here.update("router", state=State.STOPPED, wanted=False)
    assert said(here, "resume", "all")[-1] == "  may be acted on at once: worker (unhealthy)"


def test_a_fence_names_who_waits_for_the_node(here: world.World) -> None:
    assert said(here, "fence", "n2") == [
        "fence n2: the others no longer wait for it; what still runs there would meet a new life",
        "  in all: 5 ranks of serve, on n2",
    ]
