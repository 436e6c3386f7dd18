"""What a check found, and how often in a row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"  # the probe itself could not tell: never counted as a failure


@dataclass(frozen=True)
class Result:
    """One round of one check. `evidence` is one line for people; `took_s` is the probe's duration in seconds."""

    verdict: Verdict
    evidence: str
    took_s: float = 0.0


def ok(evidence: str) -> Result:
    return Result(Verdict.OK, evidence)


def fail(evidence: str) -> Result:
    return Result(Verdict.FAIL, evidence)


def unknown(evidence: str) -> Result:
    return Result(Verdict.UNKNOWN, evidence)


@dataclass(frozen=True)
class Tally:
    """A check's recent past: the latest result, when (monotonic seconds), and the runs of equal verdicts."""

    result: Result = Result(Verdict.UNKNOWN, "not run yet")
    at: float = 0.0
    failures: int = 0
    successes: int = 0
    failing: bool = False
    passed: bool = False
