"""What a check found, and how often in a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Verdict(str, Enum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"  # the probe itself could not tell: never counted as a failure


WAITS = "waits"
"""A fact: the component itself is in order and waits for others, so that its start has all its time still."""


@dataclass(frozen=True)
class Result:
    """One round of one check. `evidence` is one line for people; `took_s` is the probe's duration in seconds.

    `facts`: what was measured, for a decision that weighs several checks. `proves`: an unknown result that proves a
    start all the same: the component answered, and objected to us.
    """

    verdict: Verdict
    evidence: str
    took_s: float = 0.0
    facts: Mapping[str, float] = field(default_factory=dict)
    proves: bool = False


def ok(evidence: str, **facts: float) -> Result:
    return Result(Verdict.OK, evidence, facts=facts)


def fail(evidence: str, **facts: float) -> Result:
    return Result(Verdict.FAIL, evidence, facts=facts)


def unknown(evidence: str, *, proves: bool = False, **facts: float) -> Result:
    return Result(Verdict.UNKNOWN, evidence, facts=facts, proves=proves)


@dataclass(frozen=True)
class Tally:
    """A check's recent past: the latest result, when (monotonic seconds), and the runs of equal verdicts.

    `runs`: how many results there were, and `unknowns` how many of them told nothing.
    `failing_since`: when the first of the present row of failures came; of no meaning without one.
    `episodes`: how often it has begun to fail beyond its threshold, which is what one that observes would have done.
    """

    result: Result = Result(Verdict.UNKNOWN, "not run yet")
    at: float = 0.0
    failures: int = 0
    successes: int = 0
    failing: bool = False
    passed: bool = False
    episodes: int = 0
    failing_since: float = 0.0
    runs: int = 0
    unknowns: int = 0
