"""Versions are compared as people mean them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.preflight.versions import at_least, key

RISING = (
    "0.1.dev1",
    "0.7.6rc1",
    "0.18.0.dev3",
    "0.18.0a1",
    "0.18.0rc1",
    "0.18.0rc2",
    "0.18.0",
    "0.18.1",
    "3.5.12",
    "8.2.RC1",
)


def test_in_order() -> None:
    for first, second in pairwise(RISING):
        assert at_least(second, first), (first, second)
        assert not at_least(first, second), (first, second)


@pytest.mark.parametrize(
    ("text", "least", "expected"),
    [
        ("8.5.0", "8.5.0", True),
        ("8.5", "8.5.0", True),
        ("v3.5.12", "3.5.3", True),
        ("8.5.0.alpha002", "8.5.0", False),
        ("8.3.RC1", "8.5.0", False),
        ("8.5.0-beta", "8.5.0", False),
        ("25.3.rc1", "25.2.3", True),
        ("25.2.1", "25.2.3", False),
        # builds of a release
        ("8.5.0.B030", "8.5.0", True),
        ("8.5.0", "8.5.0.B030", True),
        ("25.5.0.b060", "25.5.0", True),
        ("25.2.3.B010", "25.2.3", True),
        ("25.2.3.B010", "25.5.0", False),
        ("0.18.0b1", "0.18.0", False),
        ("0.18.0b1", "0.18.0a2", True),
        ("8.5.0.beta1", "8.5.0", False),
        ("5.2.0+local", "5.2.0", True),
        ("5.10.0", "5.2.0", True),
        ("unknown", "5.2.0", None),
        ("", "1", None),
    ],
)
def test_at_least(text: str, least: str, expected: bool | None) -> None:
    assert at_least(text, least) is expected


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.integers(0, 9))
def test_a_candidate_comes_before_its_version_and_trailing_zeros_mean_nothing(parts: list[int], n: int) -> None:
    text = ".".join(map(str, parts))
    assert at_least(text, f"{text}rc{n}")
    assert not at_least(f"{text}.RC{n}", text)
    if len(parts) < 4:
        assert key(text) == key(f"{text}.0")
