"""What is said to wait while the nodes cannot decide together: what really would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import DEATH, FAILING, ME, RANKS, record, serve, snapshot, view
from yrnode.model.board import PROTOCOL, Board, Intent, Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupMove, Stage
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import State
from yrnode.policy import frozen, plan, trust

HEARD = "a pause, a stop or a restart that is said on another node is not heard here"
SERVES = "what serves goes on serving, and the checks of this node go on"
LATER = "a restart of serve as a whole would wait; what dies is stopped and cleaned here meanwhile"


def down(*views: ComponentView, **facts: Any) -> Snapshot:
    """The store has not answered since second 90; now is 100."""
    return replace(snapshot(*views, **facts), store_available=False, store_since=90.0, fresh=False, proven_at=89.0)


def lines(s: Snapshot) -> list[str]:
    found = frozen.frozen(s)
    assert found is not None
    return list(found.lines)


def worker(state: State, **facts: Any) -> ComponentView:
    c = view("worker", state, **facts)
    return replace(c, spec=replace(c.spec, lives_with="cache"))


def with_cache(s: Snapshot) -> Snapshot:
    cache = replace(serve(record()), name="cache", kind=GroupKind.CACHE, members=("worker",))
    return replace(s, groups={**s.groups, "cache": cache})


def test_nothing_is_frozen_where_all_can_be_decided() -> None:
    assert frozen.frozen(snapshot()) is None
    assert frozen.frozen(snapshot(view(RANKS[0], death=DEATH))) is None


READ = Board(9, "uuid")
OTHER = Board(9, "uuid", nodes={ME: Peer("i"), "n1": Peer("j", protocol=PROTOCOL + 1)})


@pytest.mark.parametrize(
    ("facts", "why", "since"),
    [
        ({"store_available": False, "store_since": 90.0, "fresh": False}, "the store does not answer", 90.0),
        ({"store_since": 99.0, "fresh": False, "board": Board()}, "the shared keys have not been read yet", 99.0),
        ({"fresh": False, "proven_at": 95.0, "board": READ}, "the watch of the shared keys has brought", 95.0),
        ({"fresh": False, "proven_at": 99.0, "board": READ}, "this node has no lease in the store", None),
        ({"settled": False, "settles_at": 107.0}, "the store has lost data: for 7 s more", 107.0 - trust.SETTLE_S),
        ({"board": OTHER}, f"n1 protocol {PROTOCOL + 1}, this node {PROTOCOL}", None),
    ],
)
def test_why_and_since_when(facts: dict[str, Any], why: str, since: float | None) -> None:
    found = frozen.frozen(snapshot(**facts))
    assert found is not None
    assert found.why.startswith(why)
    assert found.since == since
    # what other nodes say is heard as long as the watch is whole
    assert (HEARD in found.lines) is (facts.get("fresh") is False)


def test_a_node_in_order_says_what_would_wait() -> None:
    assert lines(down()) == [LATER, HEARD, SERVES]


def test_a_group_that_a_rank_of_has_died_is_named_with_its_cause() -> None:
    found = lines(down(view(RANKS[0], death=DEATH)))
    assert found[0] == f"serve: its restart waits, what is dead is stopped and cleaned here: {DEATH.text}"
    assert LATER not in found
    # ended here meanwhile: still the same
    assert lines(down(view(RANKS[0], State.STOPPED, leaving=DEATH)))[0] == found[0]


def test_a_fault_too_many_and_a_life_that_waits_to_begin() -> None:
    found = lines(down(view(RANKS[0], death=DEATH), group=serve(record(fails=2))))
    assert found[0].startswith("serve: to be given up")
    clean = [view(name, State.CLEANING, cleaned=True) for name in RANKS]
    assert lines(down(*clean, group=serve(record(Stage.STOP, 4))))[0] == "serve: the start of life 4 waits"
    held = serve(record(Stage.STOP, 4), wanted=False)
    assert lines(down(*clean, group=held)) == [HEARD, SERVES]


def test_a_group_that_operators_have_their_hands_on_does_not_wait() -> None:
    paused = {"serve": Intent(1, paused=True)}
    s = replace(down(view(RANKS[0], death=DEATH)), intents=paused)
    assert lines(replace(s, board=replace(s.board, intents=paused))) == [HEARD, SERVES]


@pytest.mark.parametrize("state", [State.STOPPED, State.BACKOFF, State.CLEANING])
def test_a_worker_that_is_down_waits_for_the_store(state: State) -> None:
    s = with_cache(down(worker(state)))
    waits = "worker: it waits for the store, without which it cannot start"
    assert waits in lines(s)
    stopped = {**s.components, "worker": replace(s.components["worker"], wanted=False)}
    assert waits not in lines(replace(s, components=stopped))
    assert waits not in lines(with_cache(down(worker(State.READY))))


def test_a_sick_worker_is_kept_while_the_store_is_away() -> None:
    sick = with_cache(down(worker(State.UNHEALTHY, checks={"acts": FAILING})))
    assert "worker: it is not restarted before the store answers: check acts fails (HTTP 503)" in lines(sick)


def test_a_word_that_only_this_node_knows_is_named() -> None:
    s = replace(down(), intents={"serve": Intent(2), "all": Intent(1)})
    s = replace(s, board=replace(s.board, intents={"all": Intent(1)}))
    assert "what was said here about serve is not known to the other nodes" in lines(s)


@pytest.mark.parametrize("death", [DEATH, Cause(Reason.CONFIGURATION, "vllm refused its command line")])
def test_what_is_said_to_wait_is_done_when_the_store_is_back(death: Cause) -> None:
    s = down(view(RANKS[0], death=death))
    assert lines(s)[0].endswith(death.text)
    back = replace(s, store_available=True, fresh=True)
    bumps = [a.cause.text for a in plan.decide(back) if a.move in (GroupMove.BUMP, GroupMove.FAIL)]
    assert bumps == [death.text]
