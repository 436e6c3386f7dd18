"""The deployment guides' functional checks: health, a completion, and the same prompt twice.

For the external cache the prompt goes to one rank and then to another: a rank that has the prompt in its own cache
never asks the external one. A rank alone in its group gets it twice, and what its metrics say is reported as it is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from yrnode.checks.completion import complete, judge
from yrnode.checks.http import UNVERIFIED, reason
from yrnode.model.verdict import Verdict

NOT_CONFIGURED = "not configured"
TIMEOUT_S = 60.0
_WORDS = 320
_SHORTEST = 40
# put into the external cache is asynchronous: a later try asks with a new prompt after a longer pause
_PAUSES_S = (0.3, 1.0, 3.0)
_COUNTERS = {
    "local_hits": "vllm:prefix_cache_hits_total",
    "local_queries": "vllm:prefix_cache_queries_total",
    "external_hits": "vllm:external_prefix_cache_hits_total",
    "external_queries": "vllm:external_prefix_cache_queries_total",
}


@dataclass(frozen=True)
class RankTarget:
    """One rank's server. `external`: it has an external cache. `key`: for requests, empty for none."""

    name: str
    group: str
    url: str
    model: str
    key: str
    external: bool


@dataclass(frozen=True)
class Finding:
    """What one rank did. Hits and queries are tokens, counted while the prompt was sent."""

    name: str
    health: str
    completion: str
    local_hits: int = 0
    external_hits: int | str = NOT_CONFIGURED
    external_queries: int | str = NOT_CONFIGURED

    @property
    def good(self) -> bool:
        return self.health == "ok" and self.completion == "ok"


@dataclass(frozen=True)
class Report:
    ranks: tuple[Finding, ...]

    @property
    def completion(self) -> bool:
        return bool(self.ranks) and all(r.good for r in self.ranks)

    @property
    def external_hits(self) -> int | str:
        """Tokens found in the external cache, or "not configured" where no rank has one."""
        counted = [r.external_hits for r in self.ranks if isinstance(r.external_hits, int)]
        return sum(counted) if counted else NOT_CONFIGURED

    @property
    def good(self) -> bool:
        """Every rank serves, and an external cache that can be told apart from the local one was hit."""
        groups_of_two = [r for r in self.ranks if isinstance(r.external_hits, int)]
        return self.completion and (len(groups_of_two) < 2 or bool(self.external_hits))

    def as_dict(self) -> dict[str, Any]:
        return {
            "good": self.good,
            "completion": self.completion,
            "external_cache_hits": self.external_hits,
            "ranks": {r.name: {k: v for k, v in asdict(r).items() if k != "name"} for r in self.ranks},
        }


async def verify(targets: Sequence[RankTarget]) -> Report:
    """Check every rank; never raises for what a rank does."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as http:
        findings = {t.name: await _serves(http, t) for t in targets}
        for group in dict.fromkeys(t.group for t in targets):
            members = [t for t in targets if t.group == group and findings[t.name].good]
            if members:
                findings |= {f.name: f for f in await _twice(http, members, findings)}
    return Report(tuple(findings[t.name] for t in targets))


async def _serves(http: aiohttp.ClientSession, t: RankTarget) -> Finding:
    try:
        async with http.get(f"{t.url}/health", ssl=UNVERIFIED) as response:
            health = "ok" if response.status == 200 else f"HTTP {response.status}"
        result = judge(*await complete(http, t.url, t.model, f"verify {secrets.token_hex(4)}", 1, t.key))
    except (aiohttp.ClientError, asyncio.TimeoutError) as e:
        return Finding(t.name, reason(e) or "no answer", "not asked")
    return Finding(t.name, health, "ok" if result.verdict is Verdict.OK else result.evidence)


async def _twice(
    http: aiohttp.ClientSession, members: list[RankTarget], findings: dict[str, Finding]
) -> list[Finding]:
    first, second = members[0], members[1] if len(members) > 1 else members[0]
    chosen = dict.fromkeys((first, second))
    try:
        before = {t: await _counters(http, t) for t in chosen}
        for pause in _PAUSES_S:
            await _ask(http, (first, second), pause)
            after = {t: await _counters(http, t) for t in chosen}
            gained = {t: {k: after[t][k] - before[t][k] for k in _COUNTERS} for t in chosen}
            if first is second or not second.external or gained[second]["external_hits"] > 0:
                break
    except (aiohttp.ClientError, asyncio.TimeoutError) as e:
        return [Finding(t.name, findings[t.name].health, f"same prompt twice: {reason(e)}") for t in chosen]
    return [
        Finding(
            t.name,
            findings[t.name].health,
            findings[t.name].completion,
            gained[t]["local_hits"],
            gained[t]["external_hits"] if t.external else NOT_CONFIGURED,
            gained[t]["external_queries"] if t.external else NOT_CONFIGURED,
        )
        for t in chosen
    ]


async def _ask(http: aiohttp.ClientSession, targets: Sequence[RankTarget], pause: float) -> None:
    """The same new prompt to each target in turn; a model too small for it gets a shorter one."""
    words = _WORDS
    prompt = _prompt(words)
    for i, t in enumerate(targets):
        status, _ = await complete(http, t.url, t.model, prompt, 2, t.key)
        while i == 0 and status == 400 and words > _SHORTEST:
            words //= 2
            prompt = _prompt(words)
            status, _ = await complete(http, t.url, t.model, prompt, 2, t.key)
        if i < len(targets) - 1:
            await asyncio.sleep(pause)


def _prompt(words: int) -> str:
    return " ".join(secrets.token_hex(1) for _ in range(words))


async def _counters(http: aiohttp.ClientSession, t: RankTarget) -> dict[str, int]:
    """The rank's cache counters in tokens, 0 for one that it does not have."""
    async with http.get(f"{t.url}/metrics", ssl=UNVERIFIED) as response:
        text = await response.text()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {k: int(sum(s.value for s in samples if s.name == name)) for k, name in _COUNTERS.items()}
