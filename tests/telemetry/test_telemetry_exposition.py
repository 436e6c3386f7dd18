"""Our text is the library's, byte for byte."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client import generate_latest as as_the_library

from yrnode.telemetry.exposition import Exposition

WORDS = st.text(st.sampled_from('ab\\n"\\\\ 节,={}'), max_size=6)
NUMBERS = st.floats() | st.integers(-(2**60), 2**60).map(float) | st.sampled_from([0.0, -0.0, 1e-9, math.inf])


@given(WORDS, st.lists(st.tuples(WORDS, WORDS, NUMBERS), max_size=5), st.lists(st.floats(0, 1e6), max_size=5))
def test_as_the_library_writes_it(help_: str, series: list[tuple[str, str, float]], seen: list[float]) -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    gauge = Gauge("a_gauge", help_, ["second", "first"], registry=registry)
    counter = Counter("a_counter", help_, ["one"], registry=registry)
    Gauge("bare", help_, registry=registry).set(series[0][2] if series else 1.0)
    histogram = Histogram("a_histogram", help_, ["one"], buckets=(0.1, 1, 50), registry=registry)
    for one, other, number in series:
        gauge.labels(one, other).set(number)
        counter.labels(one).inc(abs(number) if math.isfinite(number) else 1.0)
        for value in seen:
            histogram.labels(other).observe(value)
    ours = Exposition()
    assert ours.text(registry.collect()) == as_the_library(registry)
    gauge.clear()
    gauge.labels("new", "one").set(1.0)
    # what was kept from the first scrape is there, what has gone is not
    assert ours.text(registry.collect()) == as_the_library(registry)


def test_a_type_that_has_rules_of_its_own_is_refused() -> None:
    registry = CollectorRegistry()
    Info("build", "x", registry=registry).info({"version": "1"})
    with pytest.raises(ValueError, match="build: no rule for a info"):
        Exposition().text(registry.collect())
