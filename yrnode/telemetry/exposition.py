"""The Prometheus text format, version 0.0.4, of the families that a registry collects.

As the library writes it, byte for byte, in a fraction of the time: a daemon's series have the same labels at each
scrape, and the library checks and escapes each of them anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Pairs = tuple[tuple[str, str], ...]


class Exposition:
    """The labels of the last scrape are kept for the next one."""

    def __init__(self) -> None:
        self._kept: dict[_Pairs, str] = {}

    def text(self, families: Iterable[Metric]) -> bytes:
        """Gauges, counters and histograms without times. ValueError for others, which have rules of their own."""
        lines: list[str] = []
        before, self._kept = self._kept, {}
        for family in families:
            if family.type not in ("gauge", "counter", "histogram"):
                raise ValueError(f"{family.name}: no rule for a {family.type}")
            name = f"{family.name}_total" if family.type == "counter" else family.name
            words = family.documentation.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"# HELP {name} {words}\n# TYPE {name} {family.type}\n")
            for s in family.samples:
                if s.timestamp is not None:
                    raise ValueError(f"{s.name}: no rule for times")
                pairs = tuple(s.labels.items())
                labels = self._kept[pairs] = before.get(pairs) or self._kept.get(pairs) or _labels(pairs)
                lines.append(f"{s.name}{labels} {_number(s.value)}\n")
        return "".join(lines).encode()


def _labels(pairs: _Pairs) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(pairs)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
