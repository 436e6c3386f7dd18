"""A check of a server with several engines behind it: every engine for itself, and the worst counts.

Behind vLLM's own balancer a request goes to any engine, so that one which stands would be found by luck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from yrnode.checks.base import Check, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict

_BADNESS = {Verdict.OK: 0, Verdict.UNKNOWN: 2, Verdict.FAIL: 3}


class EachEngine:
    """params: `ranks`, the engines' numbers. Each gets a check of its own, with `rank` in its params."""

    def __init__(self, spec: CheckSpec, tools: Tools, make: Callable[[CheckSpec, Tools], Check]) -> None:
        ranks: tuple[int, ...] = spec.params["ranks"]
        self._parts = {r: make(replace(spec, params={**spec.params, "rank": r}), tools) for r in ranks}
        self._ledgers = tools.ledgers

    @property
    def asker(self) -> int | None:
        return None

    async def probe(self, target: Target) -> Result:
        targets = {rank: replace(target, engine=rank) for rank in self._parts}
        stopped = self._ledgers.of(target.asked, target.instance).stopped
        for one in targets.values():
            self._ledgers.of(one.asked, one.instance).stopped = stopped
        results = await asyncio.gather(*(part.probe(targets[rank]) for rank, part in self._parts.items()))
        weight = [(r.facts.get("missed", 0), r.facts.get("lost", 0)) for r in results]
        return worst(tuple(self._parts), results, weight)

    async def close(self) -> None:
        for part in self._parts.values():
            await part.close()


def worst(ranks: Sequence[int], results: Sequence[Result], weight: Sequence[tuple[float, float]]) -> Result:
    """The result of the engine that is worst off, among equals of the one that weighs more; named where it is bad."""

    def badness(at: int) -> tuple[int, tuple[float, float]]:
        return _BADNESS[results[at].verdict] - results[at].proves, weight[at]

    at = max(range(len(results)), key=badness)
    result = results[at]
    several = result.verdict is Verdict.OK and len(ranks) > 1
    whose = f"{len(ranks)} engines" if several else f"engine {ranks[at]}"
    return replace(result, evidence=f"{whose}: {result.evidence}")
