"""How single results become a verdict about a component."""

from __future__ import annotations

from dataclasses import replace

from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Tally, Verdict


def fold(tally: Tally, result: Result, at: float, spec: CheckSpec) -> Tally:
    """The tally after one more result. An unknown result changes neither row: it proves nothing."""
    if result.verdict is Verdict.UNKNOWN:
        return replace(tally, result=result, at=at, passed=tally.passed or result.proves)
    if result.verdict is Verdict.OK:
        successes = tally.successes + 1
        failing = tally.failing and successes < spec.successes
        return Tally(result, at, 0, successes, failing, True, tally.episodes)
    failures = tally.failures + 1
    failing = tally.failing or failures >= spec.failures
    episodes = tally.episodes + (failing and not tally.failing)
    since = tally.failing_since if tally.failures else at
    return Tally(result, at, failures, 0, failing, tally.passed, episodes, since)
