"""Hit rates: never outside of 0 to 1, never negative, bounded, and each case of what they mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.policy import hits
from yrnode.policy.hits import COLD_S, LONGEST_S, MOST, Counts, Meaning, Track, meaning, total

counts = st.builds(Counts, *[st.integers(0, 10**9)] * 4)
readings = st.lists(st.tuples(st.integers(0, 2), counts, st.floats(0, 60)), max_size=80)


def track(*samples: tuple[float, Counts], life: str = "a") -> Track:
    found = Track()
    for at, one in samples:
        found.note(life, one, at)
    return found


@given(readings, st.floats(hits.SHORTEST_S, LONGEST_S))
def test_whatever_a_server_says_rates_are_shares_and_nothing_is_negative(
    read: list[tuple[int, Counts, float]], seconds: float
) -> None:
    found, now = Track(), 0.0
    for life, one, later in read:
        now += later
        found.note(life, one, now)
        window = found.window(seconds, now)
        if window is not None:
            gained, covers = window
            assert min(astuple(gained)) >= 0
            assert covers >= 0
            for share in (gained.local, gained.external, gained.effective):
                assert share is None or 0 <= share <= 1
        newest = found.newest
        assert newest is not None
        assert newest.counts == one


@given(st.lists(st.floats(0, 10), max_size=2000))
def test_memory_is_bounded_and_the_longest_window_is_kept(pauses: list[float]) -> None:
    found, now = Track(), 0.0
    for n, pause in enumerate(pauses):
        now += pause
        found.note("a", Counts(n, 0, 0, 0), now)
        assert len(found) <= MOST
    window = found.window(LONGEST_S, now)
    if window is not None:
        assert window[1] >= min(LONGEST_S, now - pauses[0]) - hits.SPACING_S


def test_many_samples_a_second_cost_no_more() -> None:
    found = track(*((n / 10, Counts(n, 0, 0, 0)) for n in range(20_000)))
    assert len(found) <= MOST
    gained, covers = found.window(60.0, 1999.9) or (Counts(), 0.0)
    assert covers == pytest.approx(60, abs=hits.SPACING_S)
    assert gained.local_queries == pytest.approx(10 * covers, abs=1)


@pytest.mark.parametrize("restart", ["another life", "a counter that went down"])
def test_a_restart_drops_what_was_before(restart: str) -> None:
    found = track((0.0, Counts(100, 50, 50, 10)), (10.0, Counts(200, 150, 50, 10)))
    life = "b" if restart == "another life" else "a"
    new = Counts(300, 160, 60, 20) if life == "b" else Counts(199, 160, 60, 20)
    found.note(life, new, 20.0)
    assert found.window(60.0, 20.0) is None
    found.note(life, new + Counts(100, 25, 75, 0), 30.0)
    assert found.window(60.0, 30.0) == (Counts(100, 25, 75, 0), 10.0)


def test_a_window_begins_at_the_last_sample_before_it() -> None:
    found = track(*((10.0 * n, Counts(n, 0, 0, 0)) for n in range(11)))
    assert found.window(30.0, 100.0) == (Counts(3, 0, 0, 0), 30.0)
    assert found.window(35.0, 104.0) == (Counts(4, 0, 0, 0), 40.0)
    assert found.window(30.0, 130.0) is None, "nobody has read it since"


@given(counts, counts)
def test_counts_are_added_and_taken_away_each_for_itself(one: Counts, other: Counts) -> None:
    both = one + other
    assert astuple(both) == tuple(a + b for a, b in zip(astuple(one), astuple(other), strict=True))
    assert both.since(one) == other
    assert (one.since(both) is None) is (other != Counts())
    assert not hasattr(one, "__dict__")


def test_a_short_window_looks_at_no_older_sample() -> None:
    found, looked = track(*((10.0 * n, Counts(n, 0, 0, 0)) for n in range(90))), []

    class Seen(deque[Any]):
        def __reversed__(self) -> Iterator[Any]:
            for sample in super().__reversed__():
                looked.append(sample.at)
                yield sample

    found._samples = Seen(found._samples)
    assert found.window(30.0, 890.0) == (Counts(3, 0, 0, 0), 30.0)
    assert looked == [890.0, 880.0, 870.0, 860.0]


def test_all_is_weighed_by_tokens() -> None:
    whole = total([Counts(1000, 900, 100, 50), Counts(10, 0, 10, 0)])
    assert whole.local == pytest.approx(900 / 1010)
    assert whole.external == pytest.approx(50 / 110)
    assert whole.effective == pytest.approx(950 / 1010)
    assert total([]).local is None


YOUNG, OLD = COLD_S / 2, COLD_S * 2


@pytest.mark.parametrize(
    ("window", "external", "worker_s", "expected"),
    [
        (None, True, OLD, Meaning.NO_DATA),
        (None, True, None, Meaning.NO_DATA),
        (Counts(), True, OLD, Meaning.IDLE),
        (Counts(), True, None, Meaning.IDLE),
        (Counts(1000, 0, 0, 0), False, OLD, Meaning.NOT_CONFIGURED),
        (Counts(1000, 0, 0, 0), False, None, Meaning.NOT_CONFIGURED),
        (Counts(1000, 500, 500, 400), True, None, Meaning.WORKER_AWAY),
        (Counts(1000, 500, 0, 0), True, OLD, Meaning.CONNECTOR_OFF),
        (Counts(1000, 0, 0, 0), True, YOUNG, Meaning.CONNECTOR_OFF),
        # what is shorter than a block is asked of nobody
        (Counts(100, 0, 0, 0), True, OLD, Meaning.IDLE),
        (Counts(1000, 1000, 0, 0), True, OLD, Meaning.LOCAL),
        (Counts(1000, 950, 0, 0), True, OLD, Meaning.LOCAL),
        (Counts(1000, 0, 1000, 0), True, YOUNG, Meaning.COLD),
        (Counts(1000, 0, 1000, 9), True, YOUNG, Meaning.COLD),
        (Counts(1000, 0, 1000, 0), True, OLD, Meaning.NO_HITS),
        (Counts(1000, 0, 1000, 9), True, OLD, Meaning.NO_HITS),
        (Counts(60, 0, 60, 0), True, OLD, Meaning.IDLE),
        (Counts(1000, 0, 1000, 10), True, YOUNG, Meaning.HITS),
        (Counts(1000, 990, 10, 10), True, OLD, Meaning.HITS),
    ],
)
def test_what_a_window_means(
    window: Counts | None, external: bool, worker_s: float | None, expected: Meaning
) -> None:
    assert meaning(window, external, worker_s) is expected
