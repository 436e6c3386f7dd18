"""How single results become a verdict about a component."""

from __future__ import annotations

from dataclasses import replace

from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Tally, Verdict


def fold(tally: Tally, result: Result, at: float, spec: CheckSpec) -> Tally:
    """The tally after one more result. An unknown result changes neither row: it proves nothing."""
    tally = replace(tally, result=result, at=at, runs=tally.runs + 1)
    if result.verdict is Verdict.UNKNOWN:
        return replace(tally, passed=tally.passed or result.proves, unknowns=tally.unknowns + 1)
    if result.verdict is Verdict.OK:
        successes = tally.successes + 1
        failing = tally.failing and successes < spec.successes
        return replace(tally, failures=0, successes=successes, failing=failing, passed=True, failing_since=0.0)
    failures = tally.failures + 1
    failing = tally.failing or failures >= spec.failures
    episodes = tally.episodes + (failing and not tally.failing)
    since = tally.failing_since if tally.failures else at
    return replace(tally, failures=failures, successes=0, failing=failing, episodes=episodes, failing_since=since)
