"""What the daemon itself uses, so that a leak shows: memory, open files, tasks of its loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PAGE = os.sysconf("SC_PAGE_SIZE")


class DaemonCollector(Collector):
    """Read when asked, from /proc and the running loop: outside of one there is no number of tasks."""

    def __init__(self, node: str) -> None:
        self._node = node

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        with open("/proc/self/statm") as f:
            resident = int(f.read().split()[1]) * _PAGE
        yield self._one("resident_bytes", "Memory that the daemon has in RAM, in bytes.", resident)
        yield self._one("open_files", "File descriptors that the daemon has open.", len(os.listdir("/proc/self/fd")))
        try:
            tasks = len(asyncio.all_tasks())
        except RuntimeError:
            return
        yield self._one("tasks", "Tasks of the daemon's loop that have not ended.", tasks)

    def _one(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        found = GaugeMetricFamily(f"yrnode_daemon_{name}", text, labels=("node",))
        found.add_metric([self._node], value)
        return found
