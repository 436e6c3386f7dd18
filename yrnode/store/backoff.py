"""Waiting longer after each failure, never in step with others."""

from __future__ import annotations

from random import uniform


class Backoff:
    """Seconds to wait: from `first_s`, doubled each time, up to `last_s`, and of that a random part above half."""

    def __init__(self, first_s: float, last_s: float) -> None:
        self._first_s, self._last_s = first_s, last_s
        self._next_s = first_s

    def next_s(self) -> float:
        delay = self._next_s
        self._next_s = min(delay * 2, self._last_s)
        return uniform(delay / 2, delay)  # noqa: S311

    def reset(self) -> None:
        self._next_s = self._first_s
