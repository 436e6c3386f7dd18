"""Hit rates of the prefix caches: what share of tokens was found, in a window and in all, and what that means.

vLLM counts tokens. The external cache is only asked for what the local one did not have, so that what both save
together is (local hits + external hits) / local queries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import State
from yrnode.policy.connector import reads_external

WINDOW_S = 60.0
"""The usual window."""
SHORTEST_S = 10.0
"""An idle rank is read so often."""
LONGEST_S = 900.0
"""The longest window that is kept."""
SPACING_S = 3.0
"""Between two samples that are kept; the newest is kept always."""
MOST = int(LONGEST_S / SPACING_S) + 2
COLD_S = 600.0
"""A worker that has been up for less may well have nothing yet."""
LEAST = 128
"""Tokens: a block on Ascend. What is shorter may not be asked of the external cache at all."""
NEXT_TO_NOTHING = 0.01
_TICKS = 100.0
"""Clock ticks a second, on every Linux that yrnode runs on."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens asked of the local cache and found there, and of those that it lacked, asked of the external one."""

    local_queries: float = 0.0
    local_hits: float = 0.0
    external_queries: float = 0.0
    external_hits: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.local_queries + other.local_queries,
            self.local_hits + other.local_hits,
            self.external_queries + other.external_queries,
            self.external_hits + other.external_hits,
        )

    def since(self, before: Counts) -> Counts | None:
        """What has come since; None where a counter went down, which means that it began anew."""
        local_queries = self.local_queries - before.local_queries
        local_hits = self.local_hits - before.local_hits
        external_queries = self.external_queries - before.external_queries
        external_hits = self.external_hits - before.external_hits
        if min(local_queries, local_hits, external_queries, external_hits) < 0:
            return None
        return Counts(local_queries, local_hits, external_queries, external_hits)

    @property
    def local(self) -> float | None:
        """Share of tokens that the local cache had; None where nothing was asked."""
        return _share(self.local_hits, self.local_queries)

    @property
    def external(self) -> float | None:
        """Share of the tokens that were missing here, which the external cache had."""
        return _share(self.external_hits, self.external_queries)

    @property
    def effective(self) -> float | None:
        """Share of tokens that one of them had."""
        return _share(self.local_hits + self.external_hits, self.local_queries)


def total(counts: Iterable[Counts]) -> Counts:
    """Of several ranks: their tokens, so that a rate of all weighs each by what it was asked."""
    found = Counts()
    for one in counts:
        found += one
    return found


def _share(hits: float, queries: float) -> float | None:
    # counters of one page are not read at one moment, and a decode rank counts what was prefilled elsewhere
    return None if queries <= 0 else min(1.0, max(0.0, hits / queries))


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters at one moment, in monotonic seconds."""

    at: float
    counts: Counts


class Track:
    """The samples of one rank's present life, as many as the longest window needs."""

    def __init__(self) -> None:
        self._life: object = None
        self._samples: deque[Sample] = deque(maxlen=MOST)

    def note(self, life: object, counts: Counts, now: float) -> None:
        """`life`: what changes when the rank's process is another one. Its counters then begin anew."""
        samples = self._samples
        if samples and (life != self._life or counts.since(samples[-1].counts) is None):
            samples.clear()
        self._life = life
        if len(samples) > 1 and samples[-1].at - samples[-2].at < SPACING_S:
            samples.pop()
        samples.append(Sample(now, counts))

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def samples(self) -> Iterable[Sample]:
        """Oldest first."""
        return self._samples

    @property
    def newest(self) -> Sample | None:
        return self._samples[-1] if self._samples else None

    def window(self, seconds: float, now: float) -> tuple[Counts, float] | None:
        """What came within so many seconds, and how many the samples cover: more or less by a sample's distance, and
        less in a young life. None where they cannot tell."""
        if len(self._samples) < 2 or now - self._samples[-1].at >= seconds:
            return None
        base = self._samples[0]
        for sample in reversed(self._samples):
            if sample.at <= now - seconds:
                base = sample
                break
        newest = self._samples[-1]
        gained = newest.counts.since(base.counts)
        return None if gained is None else (gained, newest.at - base.at)


class Hits:
    """The tracks of this node's ranks, by name."""

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}

    def note(self, rank: str, life: object, counts: Counts, now: float) -> None:
        self._tracks.setdefault(rank, Track()).note(life, counts, now)

    @property
    def tracks(self) -> Mapping[str, Track]:
        return self._tracks


class Meaning(str, Enum):
    """What a rank's window says of its caches."""

    NO_DATA = "no-data"  # not read yet, or not any more
    IDLE = "idle"  # nothing was asked
    NOT_CONFIGURED = "not-configured"  # it reads no external cache
    WORKER_AWAY = "worker-away"  # the node's worker is not ready: all that misses here is computed
    CONNECTOR_OFF = "connector-off"  # the external cache is never asked for what is missing
    LOCAL = "local"  # nothing was missing here
    COLD = "cold"  # asked and empty, since the worker has just started
    NO_HITS = "no-hits"  # asked and without what was asked, though the worker has been up for long
    HITS = "hits"


NOT_GOOD = (Meaning.WORKER_AWAY, Meaning.CONNECTOR_OFF)


def meaning(window: Counts | None, external: bool, worker_s: float | None) -> Meaning:
    """`external`: the rank reads one. `worker_s`: how long its worker has been up; None: it is not."""
    if window is None:
        return Meaning.NO_DATA
    if window.local_queries <= 0:
        return Meaning.IDLE
    if not external:
        return Meaning.NOT_CONFIGURED
    if worker_s is None:
        return Meaning.WORKER_AWAY
    if window.external_queries <= 0:
        if window.local_queries - window.local_hits >= LEAST:
            return Meaning.CONNECTOR_OFF
        return Meaning.LOCAL if window.local_hits > 0 else Meaning.IDLE
    if (window.external or 0.0) >= NEXT_TO_NOTHING:
        return Meaning.HITS
    if window.external_queries < LEAST:
        return Meaning.IDLE
    return Meaning.COLD if worker_s < COLD_S else Meaning.NO_HITS


@dataclass(frozen=True)
class Look:
    """One rank's caches at one moment.

    `window`: what came within it, None where nobody can tell. `covers_s`: how much of it the samples cover, `age_s`:
    of the newest sample, both in seconds.
    """

    rank: str
    meaning: Meaning
    total: Counts = Counts()
    window: Counts | None = None
    covers_s: float | None = None
    age_s: float | None = None


def looks(hits: Hits, s: Snapshot, window_s: float) -> list[Look]:
    """Every rank that this node reads: its own, and those behind a head here, which may be on other nodes."""
    found = []
    own = {c.name: c for c in s.components.values() if any(check.kind == "progress" for check in c.spec.checks)}
    heads = {c.spec.group: c for c in own.values()}
    behind = {name: head for name in hits.tracks if name not in own and (head := heads.get(name.split("/")[1]))}
    for name, component in sorted((own | behind).items()):
        track = hits.tracks.get(name)
        newest = track.newest if track else None
        external = reads_external(component.spec.argv)
        if track is None or newest is None:
            found.append(Look(name, Meaning.NO_DATA))
            continue
        window, covers_s = track.window(window_s, s.now) or (None, None)
        said = meaning(window, external, _up_s(s.components.get("worker"), s.now))
        found.append(Look(name, said, newest.counts, window, covers_s, max(0.0, s.now - newest.at)))
    return found


def _up_s(worker: ComponentView | None, now: float) -> float | None:
    """For how long the worker has been up, also under an earlier daemon; None while it is not ready."""
    return None if worker is None or worker.state is not State.READY else now - worker.began / _TICKS
