import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.model.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("100ms", 0.1),
        ("1.5ms", 0.0015),
        ("0s", 0.0),
        ("30s", 30.0),
        ("30m", 1800.0),
        ("1h", 3600.0),
        ("0.5h", 1800.0),
    ],
)
def test_a_duration_becomes_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("4KB", 4096),
        ("512000MB", 512000 * 1024 * 1024),
        ("512MiB", 512 * 1024 * 1024),
        ("500GB", 500 * 1024**3),
        ("1GiB", 1024**3),
        ("1.5GB", 1536 * 1024**2),
        ("2TB", 2 * 1024**4),
    ],
)
def test_a_size_becomes_bytes_with_mb_as_the_datasystem_means_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (30, "30 has no unit; write 30s for seconds, or use ms, m or h"),
        ("30", "30 has no unit; write 30s for seconds, or use ms, m or h"),
        ("30 parsecs", '"30 parsecs" is no duration; write a number and ms, s, m or h, such as 30s'),
        ("-1s", '"-1s" is no duration; write a number and ms, s, m or h, such as 30s'),
        ("٣s", '"٣s" is no duration; write a number and ms, s, m or h, such as 30s'),
        ("", '"" is no duration; write a number and ms, s, m or h, such as 30s'),
        ("9000h", "9000h is longer than a year; write a shorter duration"),
        (True, "true is no text with a unit; write one such as 30s"),
        (None, "nothing is no text with a unit; write one such as 30s"),
        (["1s"], "a list is no text with a unit; write one such as 30s"),
    ],
)
def test_what_is_no_duration_says_what_to_write(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (512000, "512000 has no unit; write 512000MB, or use KB, GB or TB"),
        ("512mb", '"512mb" is no size; write a number and B, KB, MB, GB or TB, such as 512MB'),
        ("0.3B", "0.3B is not a whole number of bytes below 1 EB; write a size such as 512MB"),
        ("9999999TB", "9999999TB is not a whole number of bytes below 1 EB; write a size such as 512MB"),
        ({}, "a mapping is no text with a unit; write one such as 512MB"),
    ],
)
def test_what_is_no_size_says_what_to_write(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_size(value)


@given(st.floats(min_value=0, max_value=366 * 24 * 3600.0, allow_nan=False))
def test_a_formatted_duration_reads_back_exactly(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_formatted_size_reads_back_exactly(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(min_value=0, max_value=1 << 40), st.sampled_from(["ms", "s", "m", "h"]))
def test_a_duration_is_exact_or_refused(count: int, unit: str) -> None:
    per = {"ms": 1000, "s": 1, "m": 1, "h": 1}[unit]
    times = {"ms": 1, "s": 1, "m": 60, "h": 3600}[unit]
    expected = count * times / per
    if expected > 366 * 24 * 3600:
        with pytest.raises(ValueError, match="longer than a year"):
            parse_duration(f"{count}{unit}")
    else:
        assert math.isclose(parse_duration(f"{count}{unit}"), expected, rel_tol=0, abs_tol=0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (0.1, "100ms"), (5.0, "5s"), (60.0, "1m"), (90.0, "90s"), (5400.0, "90m")]
)
def test_a_duration_is_shown_as_people_write_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0B"), (1 << 29, "512MB"), (1 << 30, "1GB"), (1000, "1000B")])
def test_a_size_is_shown_as_people_write_it(size: int, text: str) -> None:
    assert format_size(size) == text
