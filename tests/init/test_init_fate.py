"""What an end of the daemon means, as a table."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.init.contract import DETACHED, MARK, below_init
from yrnode.init.fate import LONGEST_PAUSE_S, STOPPING_TRIES, Again, Over, fate, pause_s

KILLED = None


@pytest.mark.parametrize(
    ("code", "served", "stopping", "failures", "found"),
    [
        (0, True, True, 1, Over(0)),
        (0, True, False, 1, Over(0)),
        (2, False, False, 1, Over(2)),
        (1, False, True, 1, Over(1)),
        (127, False, False, 1, Over(127)),
        # a file that was spoiled since costs no engines
        (2, True, False, 1, Again(0.2)),
        (KILLED, False, False, 1, Again(0.2)),
        (KILLED, True, False, 1, Again(0.2)),
        (KILLED, True, False, 3, Again(0.8)),
        (KILLED, True, False, 1000, Again(LONGEST_PAUSE_S)),
        (DETACHED, True, False, 0, Again(0)),
        (DETACHED, False, False, 0, Again(0)),
        # a stop goes on with another daemon, but not for ever
        (KILLED, True, True, 1, Again(0.2)),
        (2, True, True, STOPPING_TRIES, Again(1)),
        (2, True, True, STOPPING_TRIES + 1, Over(1)),
    ],
)
def test_fate(code: int | None, served: bool, stopping: bool, failures: int, found: Again | Over) -> None:
    assert fate(code, served=served, stopping=stopping, failures=failures) == found


@given(st.one_of(st.none(), st.integers(1, 255)), st.integers(0, 10**9))
def test_what_has_once_run_is_never_given_up_and_never_hurried(code: int | None, failures: int) -> None:
    found = fate(code, served=True, stopping=False, failures=failures)
    assert isinstance(found, Again)
    assert found.after_s == pause_s(failures) <= LONGEST_PAUSE_S


@given(st.integers(0, 10**9))
def test_a_pause_never_gets_shorter(failures: int) -> None:
    assert pause_s(failures) <= pause_s(failures + 1)


def test_only_a_child_of_the_init_is_the_daemon() -> None:
    assert below_init({MARK: str(os.getppid())})
    assert not below_init({MARK: str(os.getpid())})
    assert not below_init({})
