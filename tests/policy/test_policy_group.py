"""What a group needs next, and that a round's moves fit together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.policy.build import DEATH, FAILING, RANKS, record, serve, snapshot, view
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, GroupRecord, Stage
from yrnode.model.snapshot import ComponentView, GroupView
from yrnode.model.state import Move, State
from yrnode.policy import group, plan

G, S = GroupMove, State
AGAIN = Cause(Reason.OPERATOR, "restart serve by root")
STOP = Cause(Reason.OPERATOR, "stop serve by root")
BAD = Cause(Reason.CONFIGURATION, "vllm refused its command line")
PORT = Cause(Reason.RESIDUE, "port 1 is not free", "in use by pid 7")


def decide(g: GroupView, *ranks: ComponentView, **facts: object) -> tuple[GroupMove, GroupRecord] | None:
    s = snapshot(*ranks, group=g, **facts)
    action = group.decide(g, s)
    if action is None:
        return None
    assert isinstance(action.move, GroupMove)
    assert action.record is not None
    assert (action.target, action.record.cause) == ("serve", action.cause)
    return action.move, action.record


def cleaned(name: str, **facts: object) -> ComponentView:
    return view(name, S.CLEANING, **{"cleaned": True, "generation": 0, **facts})


def test_the_first_record() -> None:
    assert group.first_record() == GroupRecord(1, Stage.STOP, Cause(Reason.START, "first start"))


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("stage", Stage)
def test_a_group_in_order_is_left_alone(stage: Stage, wanted: bool) -> None:
    found = decide(serve(record(stage), wanted=wanted, unwanted=STOP))
    if stage is Stage.GO and not wanted:
        assert found == (G.BUMP, GroupRecord(2, Stage.STOP, STOP))
    else:
        assert found is None


@pytest.mark.parametrize("stage", Stage)
def test_an_operator_moves_any_stage_and_forgives(stage: Stage) -> None:
    found = decide(serve(record(stage, 4, fails=2), restart=AGAIN))
    assert found == (G.BUMP, GroupRecord(5, Stage.STOP, AGAIN, fails=0))


def test_a_group_that_is_not_wanted_does_not_restart() -> None:
    assert decide(serve(record(Stage.STOP), wanted=False, unwanted=STOP, restart=AGAIN)) is None


@pytest.mark.parametrize("state", [S.STARTING, S.READY, S.UNHEALTHY])
def test_a_member_that_died_bumps_once(state: State) -> None:
    found = decide(serve(record(Stage.GO)), view(RANKS[1], state, death=DEATH))
    assert found is not None
    move, new = found
    assert move is G.BUMP
    assert (new.n, new.stage, new.fails, new.not_before) == (2, Stage.STOP, 1, 100.0)
    assert new.cause == replace(DEATH, component=RANKS[1])
    # the record has moved on: the same death is no news
    assert decide(serve(new), view(RANKS[1], state, death=DEATH)) is None


@pytest.mark.parametrize("state", [S.STOPPED, S.CLEANING, S.STOPPING, S.BACKOFF, S.FAILED])
def test_a_member_that_is_being_ended_is_no_evidence(state: State) -> None:
    assert decide(serve(record(Stage.GO)), view(RANKS[1], state, death=DEATH)) is None


def test_a_member_of_an_earlier_life_is_no_evidence() -> None:
    assert decide(serve(record(Stage.GO, 2)), view(RANKS[1], death=DEATH, generation=1)) is None


def test_two_deaths_are_one_bump() -> None:
    ranks = [view(name, death=DEATH) for name in RANKS]
    found = decide(serve(record(Stage.GO)), *ranks)
    assert found is not None
    assert (found[1].n, found[1].fails) == (2, 1)


def test_a_failing_check_that_may_act_bumps_and_one_that_observes_does_not() -> None:
    found = decide(serve(record(Stage.GO)), view(RANKS[0], checks={"acts": FAILING}))
    assert found is not None
    assert found[1].cause == Cause(Reason.CHECK, "check acts fails", "HTTP 503", RANKS[0])
    assert decide(serve(record(Stage.GO)), view(RANKS[0], checks={"observes": FAILING})) is None


def test_a_start_deadline_bumps() -> None:
    found = decide(serve(record(Stage.GO)), view(RANKS[0], S.STARTING, deadline=100.0))
    assert found is not None
    assert found[1].cause.reason is Reason.START_TIMEOUT


@pytest.mark.parametrize(
    ("fails", "ready_at", "move", "counted", "wait"),
    [
        (0, 90.0, G.BUMP, 1, 0.0),
        (1, 90.0, G.BUMP, 2, 1.0),
        (2, 90.0, G.FAIL, 3, 0.0),
        # both ready for ten minutes: a new row
        (2, -500.0, G.BUMP, 1, 0.0),
        (2, -499.0, G.FAIL, 3, 0.0),
        (2, None, G.FAIL, 3, 0.0),
    ],
)
def test_the_budget(fails: int, ready_at: float | None, move: GroupMove, counted: int, wait: float) -> None:
    ranks = [
        view(RANKS[0], generation=7, ready_at=-900.0),
        view(RANKS[1], generation=7, ready_at=ready_at, death=DEATH),
    ]
    found = decide(serve(record(Stage.GO, 7, fails=fails)), *ranks)
    assert found is not None
    done, new = found
    assert (done, new.n, new.fails) == (move, 8, counted)
    assert new.stage is (Stage.FAILED if move is G.FAIL else Stage.STOP)
    assert new.not_before == (100.0 + wait if move is G.BUMP else 0.0)
    assert ("given up" in new.cause.text) is (move is G.FAIL)
    assert new.cause.component == RANKS[1]


def test_a_life_that_began_at_the_clocks_zero_counts() -> None:
    ranks = [view(RANKS[0], ready_at=0.0), view(RANKS[1], ready_at=0.0, death=DEATH)]
    found = decide(serve(record(Stage.GO, fails=2)), *ranks, now=700.0)
    assert found is not None
    assert found[1].fails == 1


def test_a_configuration_error_ends_it_at_once() -> None:
    found = decide(serve(record(Stage.GO)), view(RANKS[0], S.STARTING, death=BAD))
    assert found == (G.FAIL, GroupRecord(2, Stage.FAILED, replace(BAD, component=RANKS[0]), 1))


def test_go_when_every_member_is_clean() -> None:
    stop = serve(record(Stage.STOP, 3, fails=2))
    assert decide(stop, *(cleaned(n) for n in RANKS)) == (G.GO, record(Stage.GO, 3, fails=2))
    # one start a generation is for the members to keep, whatever they ran before
    assert decide(stop, cleaned(RANKS[0], generation=2), cleaned(RANKS[1], generation=2)) is not None


@pytest.mark.parametrize("state", [s for s in State if s is not S.CLEANING])
def test_no_go_before_every_member_is_clean(state: State) -> None:
    assert decide(serve(record(Stage.STOP)), cleaned(RANKS[0]), view(RANKS[1], state, cleaned=True)) is None
    assert decide(serve(record(Stage.STOP)), cleaned(RANKS[0]), cleaned(RANKS[1], cleaned=False)) is None


def test_no_go_before_its_time_or_over_a_lost_plane() -> None:
    ranks = [cleaned(n) for n in RANKS]
    assert decide(serve(record(Stage.STOP, not_before=100.1)), *ranks) is None
    assert decide(serve(record(Stage.STOP, not_before=100.0)), *ranks) is not None
    assert decide(serve(record(Stage.STOP)), *ranks, view("worker", S.STARTING)) is None
    assert decide(serve(record(Stage.STOP)), *ranks, store_available=False) is None


def test_what_is_in_the_way_of_one_member_ends_the_group_with_its_cause() -> None:
    blocked = view(RANKS[1], S.CLEANING, blocked=PORT)
    found = decide(serve(record(Stage.STOP, 2, fails=1)), cleaned(RANKS[0]), blocked)
    assert found == (G.FAIL, GroupRecord(3, Stage.FAILED, replace(PORT, component=RANKS[1]), 1))


def test_a_shutdown_keeps_what_was_given_up() -> None:
    assert decide(serve(record(Stage.FAILED, 4), wanted=False)) is None


def test_a_round_with_nothing_to_do() -> None:
    assert plan.decide(snapshot()) == []


def test_one_action_for_each_at_most_and_groups_first() -> None:
    dead = view(RANKS[0], death=DEATH)
    actions = plan.decide(snapshot(view("worker", death=DEATH), dead))
    assert [a.target for a in actions] == ["serve", "worker"]


def test_nobody_starts_in_the_round_that_moves_his_record() -> None:
    ranks = [cleaned(n) for n in RANKS]
    go = serve(record(Stage.GO))
    assert {a.move for a in plan.decide(snapshot(*ranks, group=go))} == {Move.START}
    # else it would start under a number that it was not cleaned for
    assert [a.move for a in plan.decide(snapshot(*ranks, group=replace(go, restart=AGAIN)))] == [G.BUMP]


def test_the_next_look_is_at_the_nearest_deadline_ahead() -> None:
    assert plan.next_look(snapshot()) is None
    s = snapshot(view("etcd", S.STARTING, deadline=160.0), view("worker", S.BACKOFF, deadline=100.0))
    assert plan.next_look(s) == 160.0
    assert plan.next_look(replace(s, groups={"serve": serve(record(Stage.STOP, not_before=130.0))})) == 130.0
