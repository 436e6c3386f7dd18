"""When a failed component may start again: its faults in, a delay or a refusal out.

The first restart is immediate, the next wait 1, 2, 4 and 8 s. Ten minutes of being ready forget
what was before. More than five restarts in thirty minutes end it, until an operator says restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yrnode.model.cause import Reason
from yrnode.model.snapshot import Failure


@dataclass(frozen=True)
class RestartPolicy:
    """Durations in seconds. `jitter` is the share of a delay that is added at random."""

    first_delay_s: float = 1.0
    factor: float = 2.0
    longest_delay_s: float = 60.0
    jitter: float = 0.1
    forgive_after_s: float = 600.0
    budget: int = 5
    window_s: float = 1800.0


@dataclass(frozen=True)
class Again:
    delay_s: float
    text: str


@dataclass(frozen=True)
class GiveUp:
    text: str


def backoff(attempt: int, jitter: float, policy: RestartPolicy) -> float:
    """The wait in seconds before restart number `attempt` (from 1) of a row. `jitter` is in [0, 1)."""
    if attempt <= 1:
        return 0.0
    # bounded before the power, so that a long row cannot overflow
    power = min(attempt - 2, 64)
    delay = min(policy.first_delay_s * policy.factor**power, policy.longest_delay_s)
    return delay * (1 + policy.jitter * jitter)


def counted(history: Sequence[Failure], now: float, policy: RestartPolicy) -> list[Failure]:
    """The faults that still count: inside the window, since the last long enough life."""
    row: list[Failure] = []
    for failure in history:
        if failure.ready_for >= policy.forgive_after_s:
            row.clear()
        row.append(failure)
    return [f for f in row if now - f.at <= policy.window_s]


def judge(
    history: Sequence[Failure], now: float, jitter: float, policy: RestartPolicy | None = None
) -> Again | GiveUp:
    """Judge after the last fault of `history`, which must not be empty. `now` is monotonic seconds."""
    policy = policy or RestartPolicy()
    last = history[-1].cause
    if last.reason is Reason.CONFIGURATION:
        return GiveUp(f"not retried: {last}")
    row = counted(history, now, policy)
    attempt = len(row)
    if attempt > policy.budget:
        return GiveUp(f"{attempt} faults within {policy.window_s / 60:.0f} min, the last: {last}")
    delay = backoff(attempt, jitter, policy)
    return Again(delay, f"restart {attempt} of {policy.budget}, in {delay:.1f} s")
