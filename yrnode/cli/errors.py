"""How a verb ends that did not do what it was asked."""

from __future__ import annotations


class NotGood(Exception):
    """Exit 1: one line that says what is wrong and what to do."""


class Down(NotGood):
    """The daemon does not answer."""


class Late(Down):
    """Nor did it refuse: it has not answered in time."""
