"""Fits of measured points: a trend over time, and how fast something grows with something else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import median

Points = Sequence[tuple[float, float]]


def trend(points: Points) -> float:
    """The slope in y per x: the median of all pairs' (Theil and Sen), which single outliers do not move. 0 without
    two different x."""
    return median([(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if a[0] != b[0]] or [0.0])


def exponent(points: Points) -> float:
    """k of y = c · x^k by least squares of the logarithms: 0 constant, 1 linear, 2 square. Both must be above 0.
    ValueError without two different x."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mx, my = (sum(v) / len(logs) for v in zip(*logs, strict=True))
    across = sum((x - mx) ** 2 for x, _ in logs)
    if not across:
        raise ValueError("a fit needs two different x")
    return sum((x - mx) * (y - my) for x, y in logs) / across


def steepest(points: Points) -> float:
    """The exponent of the upper half of the points alone: a small constant hides the growth of the first ones."""
    ordered = sorted(points)
    return exponent(ordered[len(ordered) // 2 - (len(ordered) < 4) :])
