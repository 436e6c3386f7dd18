"""What a soak judges by, without a stack: contracts, windows of requests, and trends."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import slopes
from bench.soak_actions import RANKS, actions, group
from bench.soak_judge import GRACE_S, Contract, Window, broken, done, events_in_quiet, outside, trends
from bench.soak_stack import Gauges, Request

RANK = "rank/serve/0"
BEFORE: dict[str, Any] = {
    "ready": True,
    "started_at": "1",
    "components": {
        name: {"instance": f"i-{name}", "pid": 10 + i, "generation": 3, "last_failure": None}
        for i, name in enumerate(["etcd", "worker", *sorted(RANKS["serve"] | RANKS["second"])])
    },
    "groups": {name: {"generation": 3, "stage": "go"} for name in ("cache", "serve", "second")},
}


def after(*restarted: str, groups: tuple[str, ...] = (), rise: int = 1) -> dict[str, Any]:
    now = copy.deepcopy(BEFORE)
    for name in restarted:
        now["components"][name] |= {"instance": "new", "pid": 99, "generation": 3 + rise}
    for name in groups:
        now["groups"][name]["generation"] += rise
    return now


SERVE = tuple(sorted(RANKS["serve"]))


@pytest.mark.parametrize(
    ("now", "contract", "words"),
    [
        (after(), Contract(), ""),
        (after("etcd"), Contract(frozenset({"etcd"})), ""),
        (after(*SERVE, groups=("serve",)), group("serve"), ""),
        (after("etcd", "worker"), Contract(frozenset({"etcd"})), "worker was restarted"),
        (after(), Contract(frozenset({"etcd"})), "etcd was not restarted"),
        (after("etcd", rise=2), Contract(frozenset({"etcd"})), "went up by 2"),
        (after(*SERVE), group("serve"), "group serve went up by 0"),
        (after(*SERVE, groups=("serve",), rise=2), group("serve"), "group serve went up by 2"),
        (after(*SERVE, groups=("serve",), rise=2), replace(group("serve"), lives=2), ""),
        (after(*SERVE, groups=("serve", "second")), group("serve"), "group second went up by 1"),
        (after() | {"started_at": "2"}, Contract(), "is another one"),
        (after(), Contract(new_daemon=True), "is the same one"),
        (after() | {"ready": False, "reasons": ["worker is failed"]}, Contract(), "worker is failed"),
    ],
)
def test_a_contract_sees(now: dict[str, Any], contract: Contract, words: str) -> None:
    found = broken(BEFORE, now, contract)
    assert (words in "; ".join(found)) if words else found == []


def test_a_process_that_is_another_one_was_restarted_though_it_says_the_same_instance() -> None:
    now = after()
    now["components"]["etcd"]["pid"] = 99
    assert any("etcd was restarted" in line for line in broken(BEFORE, now, Contract()))
    assert done(BEFORE, now, Contract(frozenset({"etcd"})))
    assert not done(BEFORE, BEFORE, Contract(frozenset({"etcd"})))


@pytest.mark.parametrize(
    ("rank", "began", "ended", "error", "bad"),
    [
        (RANK, 12.0, 13.0, "refused", False),
        (RANK, 5.0, 11.0, "cut", False),
        (RANK, 20.0 + GRACE_S / 2, 30.0, "late", False),
        (RANK, 5.0, 9.0, "refused", True),
        (RANK, 21.0 + GRACE_S, 30.0, "refused", True),
        ("rank/second/0", 12.0, 13.0, "refused", True),
        ("rank/second/0", 12.0, 13.0, "", False),
    ],
)
def test_a_request_may_fail_only_where_an_action_allows_it(
    rank: str, began: float, ended: float, error: str, bad: bool
) -> None:
    window = Window("drill", 10.0, 20.0, frozenset({RANK}))
    assert bool(outside([Request(rank, began, ended, error)], [window])) is bad


def looks(daemon: int, at: float, tasks: float, events: float = 0.0) -> list[Gauges]:
    names = ("resident_bytes", "open_files", "threads", "state_dir_bytes", "run_dir_entries", "shm_files")
    values = {"tasks": tasks, "event_file_bytes": events, **dict.fromkeys(names, 5.0)}
    return [Gauges(at + i, daemon, dict(values)) for i in range(3)]


@pytest.mark.parametrize(("per_pause", "good"), [(0.0, True), (1.0, False)])
def test_what_leaks_is_seen_in_the_longest_life_alone(per_pause: float, good: bool) -> None:
    short = [looks(1, 10.0 * i, 100.0 * i) for i in range(3)]
    long = [looks(2, 100.0 + 30.0 * i, 40 + per_pause * i) for i in range(12)]
    found = {t.name: t for t in trends(short + long, warm_s=60.0)}
    assert found["tasks"].good is good
    assert found["tasks"].points == 10
    assert found["tasks"].per_hour == pytest.approx(per_pause * 120)
    assert found["open_files"].good is True
    assert found["event_file_bytes"].good is None


def test_a_run_that_is_too_short_judges_no_trend() -> None:
    assert {t.good for t in trends([looks(1, 20.0 * i, 50.0 * i) for i in range(6)], 0.0)} == {None}
    assert {t.points for t in trends([], 0.0)} == {0}


def test_events_of_the_pauses_alone_are_counted() -> None:
    one, two = looks(1, 0.0, 1.0, events=100.0), looks(1, 50.0, 1.0, events=9000.0)
    two[-1].values["event_file_bytes"] += 40.0
    assert events_in_quiet([one, two, []]) == pytest.approx(10.0)


def test_every_kind_of_fault_is_among_the_actions() -> None:
    names = [a.name for a in actions()]
    assert len(set(names)) == len(names)
    for word in ("kill", "freeze", "hang", "store-down", "store-empty", "daemon-kill", "restart", "paused", "detach"):
        assert any(word in name for name in names), word


@given(k=st.floats(-2, 3), c=st.floats(1e-6, 1e6))
def test_the_exponent_of_a_power_is_found(k: float, c: float) -> None:
    points = [(x, c * x**k) for x in (1.0, 8.0, 64.0, 256.0, 512.0)]
    assert slopes.exponent(points) == pytest.approx(k, abs=1e-6)
    assert slopes.steepest(points) == pytest.approx(k, abs=1e-6)


def test_a_constant_does_not_hide_a_square() -> None:
    points = [(x, 1000.0 + x * x) for x in (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)]
    assert slopes.exponent(points) < 1.1
    assert slopes.steepest(points) > 1.4
    with pytest.raises(ValueError, match="two different"):
        slopes.exponent([(1.0, 1.0), (1.0, 2.0)])


@given(rise=st.floats(-10, 10), outlier=st.floats(-1e6, 1e6))
def test_a_trend_is_not_moved_by_one_outlier(rise: float, outlier: float) -> None:
    points = [(float(x), rise * x) for x in range(11)]
    points[4] = (4.0, outlier)
    assert slopes.trend(points) == pytest.approx(rise, abs=1e-6)
    assert slopes.trend(points[:1]) == 0.0
