"""Memory for the worker's cache and for vLLM's queues: huge pages, MemAvailable, control groups and /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Iterable

from yrnode.config.layout import devices_per_rank, node_servers
from yrnode.model.memory import Memory, MemoryNeed
from yrnode.preflight.finding import Finding, Look, good, not_here, refusal, warning
from yrnode.residue import memory

HUGE, PLAIN, START = "huge pages", "memory", "worker's start timeout"
SHM = "/dev/shm"  # noqa: S108  the check's name
START_S = 600.0
LARGE = 21 * 1024**3
"""Shared memory above this wants huge pages, says the deployment guide."""
BROADCAST, RESPONSE = 160 * 1024**2, 240 * 1024**2
"""vLLM's queues between an engine and its workers, as measured: one to all of them, and one back from each."""
_MIB = 1024**2


def look(at: Look) -> list[Finding]:
    needs = [spec.memory for spec in at.specs if spec.memory is not None]
    found = [f for need in needs for f in _worker(at, need)]
    data = at.host.cluster.datasystem
    return [*found, *judge_start(data.shared_memory, data.huge_pages, data.start_timeout), _queues(at)]


def _worker(at: Look, need: MemoryNeed) -> list[Finding]:
    name = HUGE if need.huge else PLAIN
    if at.runs:
        return [not_here(name, "the yrnode that runs here has it"), *large(need)]
    plain, page = memory.free(False, at.root), huge_page(at.read("/proc/meminfo"))
    if plain is None or (need.huge and not page):
        return [not_here(name, "the kernel does not tell")]
    huge = memory.free(True, at.root) if need.huge else None
    if huge is None:
        return [judge_plain(need.size, plain), *large(need)]
    return [judge_huge(need.size, huge, page, plain.free)]


def judge_start(size: int, huge: bool, timeout_s: float) -> list[Finding]:
    """Huge pages are all taken at the start, which for hundreds of GB takes minutes."""
    if not huge or size <= LARGE or timeout_s >= START_S:
        return []
    needed = f"{START_S:.0f} s for {size // _MIB} MiB of huge pages, says the deployment guide"
    return [warning(START, f"{timeout_s:.0f} s", needed, f"write start_timeout: {START_S:.0f}s under datasystem")]


def huge_page(meminfo: str) -> int:
    """Bytes of one huge page; 0 where the kernel has none."""
    for line in meminfo.splitlines():
        if line.startswith("Hugepagesize:"):
            return int(line.split()[1]) * 1024
    return 0


def judge_huge(size: int, seen: Memory, page: int, available: int) -> Finding:
    """All in bytes. `size`: of the shared memory; `page`: of a huge page; `available`: what pages can be made of."""
    pages, free, total = -(-size // page), max(0, seen.free) // page, seen.total // page
    words, needed = f"{free} huge pages of {page // _MIB} MiB free", f"{pages} for datasystem.shared_memory"
    if free >= pages:
        return good(HUGE, words, needed)
    cure = f"echo {pages + total - free} > /proc/sys/vm/nr_hugepages"
    if (pages - free) * page > available:
        cure = f"lower datasystem.shared_memory: {max(0, available) // _MIB} MiB are left to make huge pages of"
    if total >= pages:
        # they may be free again by the time that the worker starts
        return warning(HUGE, words, needed, f"end what uses the others, or {cure}")
    return refusal(HUGE, words, needed, cure)


def judge_plain(size: int, seen: Memory) -> Finding:
    words = f"{max(0, seen.free) // _MIB} MiB free, {seen.where}"
    needed = f"{size // _MIB} MiB for datasystem.shared_memory"
    if seen.free >= size:
        return good(PLAIN, words, needed)
    cure = "lower datasystem.shared_memory, or "
    if seen.total >= size:
        # it may be free again by the time that the worker fills it
        return warning(PLAIN, words, needed, f"{cure}end what takes the memory")
    return refusal(PLAIN, words, needed, f"{cure}give this host or its container more")


def large(need: MemoryNeed) -> list[Finding]:
    if need.huge or need.size <= LARGE:
        return []
    words = f"{need.size // _MIB} MiB of shared memory without huge pages"
    cure = "reserve huge pages, and write huge_pages: true under datasystem"
    return [warning(HUGE, words, f"huge pages above {LARGE // _MIB} MiB", cure)]


def _queues(at: Look) -> Finding:
    cluster = at.host.cluster
    widths = [
        devices_per_rank(cluster.groups[server.group])
        for server in node_servers(cluster, at.host.node)
        for _ in range(server.count)
    ]
    if at.runs:
        return not_here(SHM, "the yrnode that runs here uses it")
    try:
        room = os.statvfs(at.root / "dev/shm")
    except OSError as e:
        return not_here(SHM, e.strerror or str(e))
    return judge_queues(widths, room.f_bavail * room.f_frsize)


def judge_queues(widths: Iterable[int], free: int) -> Finding:
    """`widths`: devices of each rank here. The worker's memory is no file there, vLLM's queues are."""
    needed = sum(BROADCAST + RESPONSE * width for width in widths)
    words, most = f"{free // _MIB} MiB free", f"up to {needed // _MIB} MiB for the ranks' queues"
    if free >= needed:
        return good(SHM, words, most)
    cure = f"start the container with --shm-size={-(-needed // 1024**3) + 1}g, or remount /dev/shm with a larger size"
    return warning(SHM, words, most, cure)
