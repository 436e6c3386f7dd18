"""Hit rates as the API and the metrics tell them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.fake import FakeNode, snapshot, view
from yrnode.api.cache import cache
from yrnode.model.identity import Identity
from yrnode.model.snapshot import ComponentView
from yrnode.model.spec import CheckSpec
from yrnode.model.state import Plane, State
from yrnode.policy.hits import COLD_S, Counts, Hits

ME = Identity("n0", "lab", "1", 0.0)
BEGAN = int(100 * (1000 - 2 * COLD_S))


def rank(name: str, external: bool = True) -> ComponentView:
    own = view(name, Plane.ENGINE)
    checks = (*own.spec.checks, CheckSpec("progress", "progress", 2.0, 5.0))
    argv = ("vllm", *(("--kv-transfer-config", "{}") if external else ()))
    return replace(own, spec=replace(own.spec, checks=checks, argv=argv))


def fed(*samples: tuple[str, float, Counts]) -> Hits:
    hits = Hits()
    for name, at, counts in samples:
        hits.note(name, "a", counts, at)
    return hits


R0, R1 = "rank/serve/0", "rank/serve/1"
HITS = fed(
    (R0, 950.0, Counts(1000, 100, 900, 0)),
    (R0, 999.0, Counts(3000, 600, 2400, 750)),
    (R1, 990.0, Counts(10, 0, 10, 10)),
)


def told(hits: Hits = HITS, *changed: ComponentView, window_s: float = 60.0) -> dict[str, Any]:
    worker = view("worker", Plane.CACHE, began=BEGAN)
    return cache(hits, snapshot(worker, rank(R0), rank(R1), *changed), ME, window_s)


def test_each_rank_and_all_weighed_by_tokens() -> None:
    found = told()
    assert (found["node"], found["cluster"], found["window_s"]) == ("n0", "lab", 60.0)
    r0, r1 = found["ranks"][R0], found["ranks"][R1]
    assert (r0["meaning"], r0["local_win"], r0["ext_win"], r0["eff_win"]) == ("hits", 0.25, 0.5, 0.625)
    assert (r0["local_total"], r0["ext_total"], r0["eff_total"]) == (0.2, 0.3125, 0.45)
    assert (r0["covers_s"], r0["age_s"]) == (49.0, 1.0)
    assert (r1["meaning"], r1["local_win"], r1["ext_total"], r1["covers_s"]) == ("no-data", None, 1.0, None)
    assert found["all"]["eff_total"] == pytest.approx(1360 / 3010), "no mean of rates"
    assert found["all"]["tokens"]["window"]["local_queries"] == 2000


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (view("worker", Plane.CACHE, State.BACKOFF), "worker-away"),
        (view("worker", Plane.CACHE, began=100 * 990), "cold"),
        (view("worker", Plane.CACHE, began=BEGAN), "no-hits"),
        (rank(R0, external=False), "not-configured"),
    ],
)
def test_what_it_means_depends_on_the_worker(change: ComponentView, expected: str) -> None:
    hits = fed((R0, 950.0, Counts(0, 0, 0, 0)), (R0, 999.0, Counts(2000, 0, 2000, 0)))
    assert told(hits, change)["ranks"][R0]["meaning"] == expected


def test_engines_behind_a_head_and_a_rank_that_is_never_read() -> None:
    hits = fed((R0, 999.0, Counts(1, 0, 0, 0)), ("rank/serve/7", 999.0, Counts(5, 0, 0, 0)))
    assert list(told(hits)["ranks"]) == [R0, R1, "rank/serve/7"]
    assert told(Hits())["ranks"][R0]["meaning"] == "no-data"
    assert told(Hits())["all"]["eff_total"] is None


def samples(node: FakeNode) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(node.metrics.text().decode())
    found = [s for f in families for s in f.samples if s.name.startswith("yrnode_cache_")]
    assert all((s.labels["node"], s.labels["plane"]) == ("n0", "engine") for s in found)
    return {
        (
            s.name,
            s.labels["component"],
            *(v for k, v in s.labels.items() if k not in ("node", "component", "plane")),
        ): (s.value)
        for s in found
    }


def test_metrics(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.state = snapshot(view("worker", Plane.CACHE, began=BEGAN), rank(R0))
    node.metrics.hits.note(R0, "a", Counts(1000, 100, 900, 0), 950.0)
    node.metrics.hits.note(R0, "a", Counts(3000, 600, 2400, 750), 999.0)
    found = samples(node)
    assert found["yrnode_cache_hit_ratio", R0, "local", "60s"] == 0.25
    assert found["yrnode_cache_hit_ratio", R0, "external", "total"] == 0.3125
    assert found["yrnode_cache_hit_ratio", R0, "effective", "60s"] == 0.625
    assert found["yrnode_cache_tokens_total", R0, "external", "hits"] == 750
    assert found["yrnode_cache_meaning", R0, "hits"] == 1
    assert found["yrnode_cache_meaning", R0, "cold"] == 0
