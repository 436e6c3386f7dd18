"""Restarts of a single component: when again, and when no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import Failure
from yrnode.policy.restart import Again, GiveUp, RestartPolicy, backoff, counted, judge

POLICY = RestartPolicy()
DEAD = Cause(Reason.EXITED, "exited: exit code 1", "last words")


def faults(*ages: float, ready_for: float = 1.0, cause: Cause = DEAD) -> list[Failure]:
    """Faults that happened so many seconds before 10000."""
    return [Failure(10000 - age, ready_for, cause) for age in ages]


@pytest.mark.parametrize(
    ("attempt", "delay"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (7, 32), (8, 60), (9, 60), (10**6, 60)]
)
def test_backoff_doubles_up_to_a_minute(attempt: int, delay: float) -> None:
    assert backoff(attempt, 0.0, POLICY) == delay
    assert backoff(attempt, 0.5, POLICY) == pytest.approx(delay * 1.05)


@given(attempt=st.integers(0, 10**9), jitter=st.floats(0, 1, exclude_max=True))
def test_backoff_is_bounded_and_never_shrinks(attempt: int, jitter: float) -> None:
    assert 0 <= backoff(attempt, jitter, POLICY) <= 66
    assert backoff(attempt, jitter, POLICY) <= backoff(attempt + 1, jitter, POLICY)


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        (faults(0), Again(0, "restart 1 of 5, in 0.0 s")),
        (faults(10, 0), Again(1, "restart 2 of 5, in 1.0 s")),
        (faults(40, 30, 20, 10, 0), Again(8, "restart 5 of 5, in 8.0 s")),
        (faults(50, 40, 30, 20, 10, 0), GiveUp(f"6 faults within 30 min, the last: {DEAD}")),
        # what lies outside the window is forgotten
        (faults(1801, 40, 30, 20, 10, 0), Again(8, "restart 5 of 5, in 8.0 s")),
        (faults(1800, 40, 30, 20, 10, 0), GiveUp(f"6 faults within 30 min, the last: {DEAD}")),
        # ten minutes of being ready forget what was before, not a second less
        ([*faults(900, 800, 700, 650, 640), *faults(0, ready_for=600)], Again(0, "restart 1 of 5, in 0.0 s")),
        (
            [*faults(900, 800, 700, 650, 640), *faults(0, ready_for=599)],
            GiveUp(f"6 faults within 30 min, the last: {DEAD}"),
        ),
    ],
)
def test_judge(history: list[Failure], verdict: Again | GiveUp) -> None:
    assert judge(history, 10000, 0.0) == verdict


def test_a_configuration_error_is_never_retried() -> None:
    wrong = Cause(Reason.CONFIGURATION, "vllm refused its command line", "--no-such-flag")
    assert judge(faults(0, cause=wrong), 10000, 0.0) == GiveUp(f"not retried: {wrong}")


def test_the_evidence_of_the_last_fault_is_kept() -> None:
    verdict = judge(faults(5, 4, 3, 2, 1, 0), 10000, 0.0)
    assert isinstance(verdict, GiveUp)
    assert "last words" in verdict.text


GAPS = st.lists(st.tuples(st.floats(0, 4000), st.floats(0, 1200)), min_size=1, max_size=40)


@given(GAPS)
def test_never_more_than_the_budget_in_a_window_without_a_long_life(gaps: list[tuple[float, float]]) -> None:
    history: list[Failure] = []
    restarts: list[float] = []
    now = 0.0
    for gap, ready_for in gaps:
        now += gap
        history.append(Failure(now, min(ready_for, gap), DEAD))
        if history[-1].ready_for >= POLICY.forgive_after_s:
            restarts.clear()
        if isinstance(judge(history, now, 0.0), GiveUp):
            break
        restarts.append(now)
        assert len([r for r in restarts if now - r <= POLICY.window_s]) <= POLICY.budget
        assert len(counted(history, now, POLICY)) <= POLICY.budget
