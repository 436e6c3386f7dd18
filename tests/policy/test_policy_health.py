"""Single results become a verdict: thresholds, and the unknown that proves nothing."""

from __future__ import annotations

import pytest

from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Tally, fail, ok, unknown
from yrnode.policy.health import fold

RESULTS = {"+": ok("fine"), "-": fail("bad"), "?": unknown("cannot tell")}


def play(results: str, failures: int = 3, successes: int = 1) -> Tally:
    spec = CheckSpec("x", "http", 1.0, 1.0, failures=failures, successes=successes)
    tally = Tally()
    for at, mark in enumerate(results):
        tally = fold(tally, RESULTS[mark], float(at), spec)
    return tally


@pytest.mark.parametrize(
    ("results", "failing", "passed"),
    [
        ("", False, False),
        ("?", False, False),
        ("+", False, True),
        ("--", False, False),
        ("---", True, False),
        ("--+--", False, True),
        ("---+", False, True),
        # an unknown result neither counts nor breaks a row
        ("-?-?-", True, False),
        ("---?", True, False),
        ("+---", True, True),
        ("+????????", False, True),
    ],
)
def test_rows(results: str, failing: bool, passed: bool) -> None:
    tally = play(results)
    assert (tally.failing, tally.passed) == (failing, passed)


@pytest.mark.parametrize(
    ("results", "failing"), [("-", True), ("-+", True), ("-+-+", True), ("-++", False), ("-+?+", False)]
)
def test_a_failure_ends_after_enough_successes_in_a_row(results: str, failing: bool) -> None:
    assert play(results, failures=1, successes=2).failing is failing


def test_counts_and_the_latest_result_are_kept() -> None:
    tally = play("+--")
    assert (tally.failures, tally.successes, tally.at, tally.result) == (2, 0, 2.0, RESULTS["-"])
    tally = play("-++?")
    assert (tally.failures, tally.successes, tally.at, tally.result) == (0, 2, 3.0, RESULTS["?"])


@pytest.mark.parametrize(
    ("results", "episodes"), [("--", 0), ("---", 1), ("------", 1), ("---+--", 1), ("---+---", 2), ("---?---", 1)]
)
def test_how_often_it_would_have_acted(results: str, episodes: int) -> None:
    assert play(results).episodes == episodes


def test_a_refusal_that_proves_a_start_counts_for_nothing_else() -> None:
    spec = CheckSpec("x", "canary", 1.0, 1.0, gate=True)
    tally = fold(play("--"), unknown("canary not authorised", proves=True), 9.0, spec)
    assert (tally.passed, tally.failures, tally.failing) == (True, 2, False)


def test_evidence_is_of_the_latest_result() -> None:
    spec = CheckSpec("x", "http", 1.0, 1.0)
    assert fold(play("+"), Result(RESULTS["-"].verdict, "HTTP 503", 0.2), 9.0, spec).result.evidence == "HTTP 503"


def test_how_many_results_there_were_and_how_many_told_nothing() -> None:
    tally = play("+?--?---+")
    assert (tally.runs, tally.unknowns) == (9, 2)
