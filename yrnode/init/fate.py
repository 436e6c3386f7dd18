"""What the end of a daemon means: another one after a pause, or the end of all."""

from __future__ import annotations

from dataclasses import dataclass

from yrnode.init.contract import DETACHED

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""A daemon that has lived so long has done nothing wrong: its successor comes at once again."""
STOPPING_PAUSE_S = 1.0
STOPPING_TRIES = 5


@dataclass(frozen=True)
class Again:
    after_s: float


@dataclass(frozen=True)
class Over:
    """`code`: the exit code of the init."""

    code: int


def fate(code: int | None, *, served: bool, stopping: bool, failures: int) -> Again | Over:
    """`code`: the daemon's exit code, None where a signal ended it. `served`: whether any daemon of ours got as far
    as supervising. `stopping`: we were told to stop. `failures`: ends in a row that nobody asked for, this one too.

    Before anything has run there is nothing to keep, so a refusal is passed on. Later there are engines, which a
    faulty file or a full disk must not cost: never given up.
    """
    if code == 0:
        return Over(0)
    if code is not None and code != DETACHED and not served:
        return Over(code)
    if stopping:
        return Over(1) if failures > STOPPING_TRIES else Again(min(STOPPING_PAUSE_S, pause_s(failures)))
    return Again(pause_s(failures))


def pause_s(failures: int) -> float:
    """Seconds before the next daemon: none where none has failed, then doubled, up to half a minute."""
    if failures <= 0:
        return 0.0
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (min(failures, 20) - 1)))
