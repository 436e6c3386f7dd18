"""How long a start usually takes, and when it is said to be late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.build import record, serve, snapshot, view
from yrnode.model.group import Stage
from yrnode.model.starts import Starts
from yrnode.model.state import State
from yrnode.policy import usual

SECONDS = st.lists(st.floats(0, 1e5), min_size=1, max_size=20)


@given(SECONDS)
def test_the_usual_time_is_of_the_newest_starts(seconds: list[float]) -> None:
    newest = seconds[-usual.KEPT :]
    assert min(newest) <= usual.usual(seconds) <= max(newest)
    assert usual.usual([1e6] * 30 + newest * usual.KEPT) <= max(newest), "older ones are forgotten"


@given(st.lists(st.floats(590, 610), min_size=4, max_size=4), st.integers(0, 4))
def test_one_start_that_was_held_up_hardly_counts(seconds: list[float], at: int) -> None:
    seconds.insert(at, 5000.0)
    assert 590 <= usual.usual(seconds) <= 610


def test_nothing_is_known_before_the_first() -> None:
    assert usual.usual([]) is None


@pytest.mark.parametrize(
    ("elapsed", "usually", "late"),
    [(100, None, False), (1199, 600, False), (1200, 600, True), (3, 1, False), (10, 1, False), (11, 1, True)],
)
def test_late_is_twice_the_usual_time_and_ten_seconds(elapsed: float, usually: float | None, late: bool) -> None:
    assert usual.Progress("start", elapsed, usually).late is late


@pytest.mark.parametrize("state", list(State))
def test_only_what_is_under_way_has_progress(state: State) -> None:
    words = {State.STARTING: "start", State.STOPPING: "stop", State.CLEANING: "clean"}
    found = usual.of_component(view("worker", state, since=40.0), snapshot())
    assert found == (usual.Progress(words[state], 60.0) if state in words else None)


def test_who_is_clean_and_waits_for_others_does_not_clean() -> None:
    assert usual.of_component(view("worker", State.CLEANING, since=40.0, cleaned=True), snapshot()) is None


def test_progress_of_a_component() -> None:
    starts = Starts({"worker": 7.0}, {}, {"worker": "half way"})
    found = usual.of_component(view("worker", State.STARTING, since=40.0), replace(snapshot(), starts=starts))
    assert found == usual.Progress("start", 60.0, 7.0, "half way")
    assert found.late


def test_progress_of_a_group() -> None:
    starts = Starts({}, {"serve": 30.0}, {})

    def of(stage: Stage, state: State = State.READY, **facts: object) -> usual.Progress | None:
        group = replace(serve(record(stage)), learned_at=90.0, **facts)
        s = replace(snapshot(view("rank/serve/0", state, since=97.0), group=group), starts=starts)
        return usual.of_group(s.groups["serve"], s)

    assert of(Stage.GO) is None
    assert of(Stage.FAILED) is None
    assert of(Stage.GO, State.STARTING) == usual.Progress("start", 10.0, 30.0)
    assert of(Stage.STOP, State.STOPPING) == usual.Progress("stop", 10.0)
    assert of(Stage.STOP, State.STOPPED, wanted=False) is None
    # a stop that no life follows: from when this node's part began to stop
    assert of(Stage.STOP, State.STOPPING, wanted=False) == usual.Progress("stop", 3.0)
    assert of(Stage.GO, State.STOPPING, wanted=False) == usual.Progress("stop", 3.0)
    assert of(Stage.FAILED, State.STOPPING) == usual.Progress("stop", 3.0)


def test_what_a_restart_of_several_takes() -> None:
    times = {"etcd": 2.0, "worker": 6.0, "rank/serve/0": 100.0, "rank/serve/1": 110.0}
    s = replace(snapshot(), starts=Starts(times, {"serve": 130.0}, {}))
    assert usual.expected_s(["worker"], [], s) == 6.0
    assert usual.expected_s(["rank/serve/0", "rank/serve/1"], [], s) == 110.0, "they start together"
    assert usual.expected_s(["rank/serve/0", "rank/serve/1"], ["serve"], s) == 130.0, "with those of other nodes"
    assert usual.expected_s(["worker", "rank/serve/0"], ["serve"], s) == 136.0, "one plane after the other"
    assert usual.expected_s(["router", "worker"], [], s) is None, "the router has never been seen to start"
    assert usual.expected_s([], [], s) is None
