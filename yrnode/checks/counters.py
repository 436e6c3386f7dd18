"""The cache counters of vLLM's /metrics, in tokens, of each engine behind a server."""

from __future__ import annotations

from collections.abc import Sequence

from yrnode.policy.hits import Counts

_NAMES = {
    b"vllm:prefix_cache_queries_total": 0,
    b"vllm:prefix_cache_hits_total": 1,
    b"vllm:external_prefix_cache_queries_total": 2,
    b"vllm:external_prefix_cache_hits_total": 3,
}
_BEGAN = b"process_start_time_seconds"
_CREATED = (b"vllm:prefix_cache_queries_created", b"vllm:external_prefix_cache_queries_created")
_PREFIXES = (b"vllm:prefix_cache_", b"vllm:external_prefix_cache_", _BEGAN)
_ENGINE = b'engine="'

Life = tuple[bytes, ...]
"""When the process and its counters began, in the server's own words: another one counts from 0."""


def read(page: bytes, ranks: Sequence[int] = ()) -> list[tuple[Life, Counts] | None]:
    """Of each of these ranks, or of all together where none is named; None where the page has none of its counters.

    ValueError for a page that is none.
    """
    lines = [x for x in page.split(b"\n") if x.startswith(_PREFIXES)]
    process = [x for x in lines if x.startswith(_BEGAN)]
    if not ranks:
        return [_read(process, lines)]
    own: dict[bytes, list[bytes]] = {b"%d" % rank: [] for rank in ranks}
    for line in lines:
        own.get(line.partition(_ENGINE)[2].partition(b'"')[0], []).append(line)
    return [_read(process, found) for found in own.values()]


def _read(process: Sequence[bytes], lines: Sequence[bytes]) -> tuple[Life, Counts] | None:
    values = [0.0, 0.0, 0.0, 0.0]
    found = False
    created = []
    for line in lines:
        name = line.partition(b"{")[0]
        at = _NAMES.get(name)
        if at is not None:
            values[at] += float(line.rpartition(b" ")[2])
            found = True
        elif name in _CREATED:
            created.append(line)
    return ((*process, *sorted(created)), Counts(*values)) if found else None
