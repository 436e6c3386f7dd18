"""Hit rates of this node's ranks as JSON, in the words of the guides' script: local_win, ext_win, eff_total. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from yrnode.model.identity import Identity
from yrnode.model.snapshot import Snapshot
from yrnode.policy.hits import Counts, Hits, looks, total


def cache(hits: Hits, snapshot: Snapshot, identity: Identity, window_s: float) -> dict[str, Any]:
    """Each rank's rates in the window and in all, what they mean, and those of all ranks, weighed by tokens."""
    found = looks(hits, snapshot, window_s)
    return {
        "node": identity.node,
        "cluster": identity.cluster,
        "window_s": window_s,
        "ranks": {
            x.rank: {
                "meaning": x.meaning.value,
                **rates(x.window or Counts(), x.total),
                "covers_s": None if x.covers_s is None else round(x.covers_s, 1),
                "age_s": None if x.age_s is None else round(x.age_s, 1),
            }
            for x in found
        },
        "all": rates(total(x.window or Counts() for x in found), total(x.total for x in found)),
    }


STEP_S = 10.0
"""Between two points of a series."""


def series(hits: Hits, now: float) -> dict[str, list[list[float | None]]]:
    """Each rank's `[seconds ago, local, external, effective]`, oldest first; None where nothing was asked."""
    found: dict[str, list[list[float | None]]] = {}
    for rank, track in hits.tracks.items():
        points = found.setdefault(rank, [])
        base = None
        for sample in track.samples:
            if base is not None and sample.at - base.at < STEP_S:
                continue
            if base is not None:
                gained = sample.counts.since(base.counts) or Counts()
                shares = (gained.local, gained.external, gained.effective)
                points.append([round(now - sample.at, 1), *(x if x is None else round(x, 4) for x in shares)])
            base = sample
    return found


def rates(window: Counts, whole: Counts) -> dict[str, Any]:
    """The rates, None where nothing was asked, and the tokens that they are made of."""
    return {
        "local_win": window.local,
        "local_total": whole.local,
        "ext_win": window.external,
        "ext_total": whole.external,
        "eff_win": window.effective,
        "eff_total": whole.effective,
        "tokens": {"window": asdict(window), "total": asdict(whole)},
    }
