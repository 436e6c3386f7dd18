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
from yrnode.policy.group import INFORM_AFTER_S

G, S = GroupMove, State
AGAIN = Cause(Reason.OPERATOR, "restart serve by root")
STOP = Cause(Reason.OPERATOR, "stop serve by root")
BAD = Cause(Reason.CONFIGURATION, "vllm refused its command line")
PORT = Cause(Reason.RESIDUE, "port 1 is not free", "in use by pid 7")


def decide(g: GroupView, *ranks: ComponentView, **facts: object) -> tuple[GroupMove, GroupRecord] | None:
    s = snapshot(*ranks, group=g, **facts)
    action = group.decide(g, s)
    if action is None or action.move is G.TELL:
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
    assert (new.n, new.stage, new.fails, new.backoff_s) == (2, Stage.STOP, 1, 0.0)
    assert new.cause == replace(DEATH, component=RANKS[1])
    # the record has moved on: the same death is no news
    assert decide(serve(new), view(RANKS[1], state, death=DEATH)) is None


@pytest.mark.parametrize("state", [S.STOPPED, S.STOPPING, S.FAILED])
def test_a_member_that_was_ended_as_dead_is_evidence_still(state: State) -> None:
    """The store may have been away when it died."""
    dead = view(RANKS[1], state, leaving=DEATH)
    found = decide(serve(record(Stage.GO)), dead)
    assert found is not None
    assert found[1].cause == replace(DEATH, component=RANKS[1])


@pytest.mark.parametrize("state", [S.STOPPED, S.FAILED])
def test_a_member_that_is_not_there_though_its_life_was_begun(state: State) -> None:
    begun = serve(record(Stage.GO, 4), started=4)
    found = decide(begun, view(RANKS[1], state, generation=0))
    assert found is not None
    assert found[1].cause.text == "no instance of generation 4 was found"
    # on purpose: no fault, and free
    found = decide(replace(begun, ended=True), view(RANKS[1], state, generation=0))
    assert found is not None
    assert (found[1].cause.reason, found[1].fails) == (Reason.START, 0)
    # not begun here: it waits for its own promise
    assert decide(serve(record(Stage.GO, 4), started=3), view(RANKS[1], state, generation=0)) is None


@pytest.mark.parametrize("state", [S.CLEANING, S.STOPPING])
def test_a_member_on_its_way_is_no_evidence(state: State) -> None:
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
    ("fails", "move", "counted", "wait"), [(0, G.BUMP, 1, 0.0), (1, G.BUMP, 2, 1.0), (2, G.FAIL, 3, 0.0)]
)
def test_the_budget(fails: int, move: GroupMove, counted: int, wait: float) -> None:
    ranks = [view(RANKS[0], generation=7), view(RANKS[1], generation=7, death=DEATH)]
    found = decide(serve(record(Stage.GO, 7, fails=fails, members=("n0",))), *ranks)
    assert found is not None
    done, new = found
    assert (done, new.n, new.fails, new.backoff_s, new.members) == (move, 8, counted, wait, ("n0",))
    assert new.stage is (Stage.FAILED if move is G.FAIL else Stage.STOP)
    assert ("given up" in new.cause.text) is (move is G.FAIL)
    assert new.cause.component == RANKS[1]


@pytest.mark.parametrize(("since", "forgiven"), [(None, False), (-499.0, False), (-500.0, True)])
def test_a_long_life_ends_the_row_of_faults(since: float | None, forgiven: bool) -> None:
    g = serve(record(Stage.GO, fails=2), ready_since=since)
    s = snapshot(group=g)
    action = group.decide(g, s)
    assert (action is not None) is forgiven
    if action is not None:
        assert action.record == replace(g.record, fails=0)
        assert action.move is G.FORGIVE
    never = serve(record(Stage.GO), ready_since=since)
    assert group.decide(never, snapshot(group=never)) is None


def gone(stage: Stage = Stage.GO, n: int = 1, **facts: object) -> GroupRecord:
    return record(stage, n, members=("n0",), **facts)


def test_go_when_every_member_is_clean() -> None:
    stop = serve(record(Stage.STOP, 3, fails=2))
    assert decide(stop, *(cleaned(n) for n in RANKS)) == (G.GO, gone(Stage.GO, 3, fails=2))
    # one start a generation is for the members to keep, whatever they ran before
    assert decide(stop, cleaned(RANKS[0], generation=2), cleaned(RANKS[1], generation=2)) is not None


@pytest.mark.parametrize("state", [s for s in State if s is not S.CLEANING])
def test_no_go_before_every_member_is_clean(state: State) -> None:
    assert decide(serve(record(Stage.STOP)), cleaned(RANKS[0]), view(RANKS[1], state, cleaned=True)) is None
    assert decide(serve(record(Stage.STOP)), cleaned(RANKS[0]), cleaned(RANKS[1], cleaned=False)) is None


def test_no_go_before_its_time_or_over_a_lost_plane() -> None:
    ranks = [cleaned(n) for n in RANKS]
    late = serve(record(Stage.STOP, backoff_s=5.0), learned_at=95.1)
    assert decide(late, *ranks) is None
    assert decide(replace(late, learned_at=95.0), *ranks) is not None
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
    assert [a.target for a in actions] == ["serve", "worker", RANKS[0]]
    assert [a.move for a in actions] == [G.BUMP, Move.STOP, Move.STOP]


def test_nobody_starts_in_the_round_that_moves_his_record() -> None:
    ranks = [cleaned(n) for n in RANKS]
    go = serve(record(Stage.GO, members=("n0",)))
    assert {a.move for a in plan.decide(snapshot(*ranks, group=go))} - {G.TELL} == {Move.START}
    # else it would start under a number that it was not cleaned for
    assert [a.move for a in plan.decide(snapshot(*ranks, group=replace(go, restart=AGAIN)))] == [G.BUMP]


def test_the_next_look_is_at_the_nearest_deadline_ahead() -> None:
    assert plan.next_look(snapshot()) == 100.0 + INFORM_AFTER_S, "the record has just come"
    assert plan.next_look(replace(snapshot(), now=101.0)) is None
    s = replace(
        snapshot(view("etcd", S.STARTING, deadline=160.0), view("worker", S.BACKOFF, deadline=101.0)), now=101.0
    )
    assert plan.next_look(s) == 160.0
    waits = serve(record(Stage.STOP, backoff_s=30.0), learned_at=100.0)
    assert plan.next_look(replace(s, groups={"serve": waits})) == 130.0


def test_one_that_an_operator_has_stopped_and_wants_again_is_no_fault() -> None:
    """The store was away all the while: the record does not know that the group was stopped here."""
    found = decide(serve(record(Stage.GO, fails=1)), view(RANKS[1], S.STOPPED, leaving=STOP))
    assert found is not None
    assert (found[0], found[1].cause, found[1].fails) == (G.BUMP, replace(STOP, component=RANKS[1]), 1)
    assert decide(serve(record(Stage.GO)), view(RANKS[1], S.STOPPING, leaving=STOP)) is None
