"""What the checks of one rank tell each other between probes: whether its engine moves, and what it was asked.

The engine moves when any series that it publishes changes. Tokens alone would not do: a long prompt is computed in
chunks that bring none, while the cache usage grows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from yrnode.process.table import Proc

SEVERAL = 2
"""Requests. One that does not end may be a fault of its own."""
SHADOW = 2
"""Readings after a canary in which only tokens are movement: its end moves gauges too, a moment later."""


@dataclass(frozen=True)
class Marks:
    """Numbers that change with the engine's series: `all` with any, `tokens` with those that count tokens.
    `generated`: tokens so far, as the engine counts them."""

    all: int
    tokens: int
    generated: int = 0


@dataclass
class Ledger:
    """Times are seconds of the daemon's own clock (`Pulse.clock`).

    `engines`: the rank's engine processes once they are known. `stopped`: one of them is in state T. `in_flight`:
    requests that the server counted last. `missed`: canaries in a row that were out of time. `asking`: how many of
    ours are in flight. `lost`: prompts from the external cache in a row that never came, while short ones did.
    `moves`: how often movement was seen. `longest_s`: the longest stand that ended by itself, over all instances.
    `_own`: tokens of ours that the engine may still count.
    """

    instance: str = ""
    engines: list[Proc] = field(default_factory=list)
    stopped: bool = False
    in_flight: int = 0
    missed: int = 0
    asking: int = 0
    lost: int = 0
    moves: int = 0
    longest_s: float = 0.0
    quiet_s: float = 10.0
    _marks: Marks | None = None
    _moved_at: float | None = None
    _others_moved_at: float | None = None
    _several_since: float | None = None
    _asked: int = 0
    _own: int = 0
    _answered: int = 0

    def read(self, in_flight: int, marks: Marks | None, now: float, unfinished: int = 0) -> None:
        """One reading: requests in flight, the engine's series, and the requests that the engine has not finished.

        The first two differ: a client that does not read its answer is in flight, and no engine's fault.
        """
        self.in_flight = in_flight
        if self._moved_at is None or (in_flight == 0 and not self.missed):
            # nothing is asked of it: there is nothing to move
            self._marks = None
            self._moved_at = self._others_moved_at = now
        elif marks is not None:
            generated = 0 if self._marks is None else max(0, marks.generated - self._marks.generated)
            if self._marks is not None and self._changed(self._marks, marks):
                self._moved(now)
                # a canary's own token moves the series too
                if not self._own or generated > self._own:
                    self._others_moved_at = now
            self._marks = marks
            self._own = max(0, self._own - generated)
        if not self.asking:
            several = min(in_flight, unfinished) >= SEVERAL
            self._several_since = (now if self._several_since is None else self._several_since) if several else None
        self._asked = SHADOW if self.asking else max(0, self._asked - 1)
        # what was answered just now may be counted a moment later, but no later than that
        self._own = min(self._own, self.asking + self._answered)
        self._answered = 0

    def _changed(self, before: Marks, after: Marks) -> bool:
        # a canary that comes and goes moves gauges of an engine that does nothing else
        return before.tokens != after.tokens if self.asking or self._asked else before != after

    def ask(self) -> None:
        """A canary is sent: a completion of one token."""
        self.asking += 1
        self._own += 1
        self._asked = SHADOW

    def asked(self) -> None:
        """It has ended, one way or another."""
        self.asking -= 1

    def answer(self, now: float) -> None:
        """It brought its token."""
        self._moved(now)
        self._answered += 1

    def miss(self) -> None:
        """It was out of time."""
        self.missed += 1

    def _moved(self, now: float) -> None:
        self.moves += 1
        stood = self.still_s(now)
        if stood >= self.quiet_s:
            self.longest_s = max(self.longest_s, stood)
        self._moved_at = now
        self.missed = 0

    def still_s(self, now: float) -> float:
        """For how long nothing of the engine has moved although something was asked of it."""
        if self._moved_at is None or not (self.in_flight or self.missed):
            return 0.0
        return now - self._moved_at

    def stuck_s(self, now: float) -> float:
        """The same, but for what canaries moved: for how long the requests of others stand."""
        return 0.0 if self._others_moved_at is None else now - self._others_moved_at

    def several_s(self, now: float) -> float:
        """For how long there has been no moment without several requests of others that are not finished."""
        return 0.0 if self._several_since is None else now - self._several_since


class Ledgers:
    """All ledgers of this daemon, and each group's turn: one idle rank of a group is asked at a time."""

    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._prompts: dict[str, dict[str, str]] = {}

    def of(self, component: str, instance: str) -> Ledger:
        """The ledger of this instance; a new instance begins a new one and keeps only what was learnt."""
        ledger = self._ledgers.get(component)
        if ledger is None or ledger.instance != instance:
            learnt = ledger.longest_s if ledger else 0.0
            ledger = self._ledgers[component] = Ledger(instance, longest_s=learnt)
        return ledger

    def turn(self, group: str) -> asyncio.Lock:
        return self._turns.setdefault(group, asyncio.Lock())

    def prompts(self, group: str) -> dict[str, str]:
        """By component, the newest prompt that it should have put into the external cache, the latest at the end."""
        return self._prompts.setdefault(group, {})
