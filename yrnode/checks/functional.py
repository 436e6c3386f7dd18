"""The deployment guides' functional checks: health, a completion, and the same prompt a second time.

For the external cache a prompt of several blocks goes to one rank and then to the others: a rank that has the prompt
in its own cache never asks the external one. A rank alone in its group gets it twice, and what its metrics say is
reported as it is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from yrnode.checks.completion import complete, judge, long_prompt, shorter
from yrnode.checks.http import UNVERIFIED, reason
from yrnode.model.verdict import Verdict
from yrnode.store.transport import within

NOT_CONFIGURED = "not configured"
TIMEOUT_S = 60.0
LONG_S = 20.0
UNFINISHED = "not finished"
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
    """One rank's server. `external`: it has an external cache. `key`: for requests, empty for none.

    `words`: the length of a prompt of several blocks.
    """

    name: str
    group: str
    url: str
    model: str
    key: str
    external: bool
    words: int

    def external_cache_hit(self, finding: Finding) -> bool:
        """Whether it was hit, as far as there is one and the rank answers."""
        return not self.external or not finding.good or finding.external_hits not in (0, NOT_CONFIGURED)


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
    """Every member gets a prompt of several blocks that another has had before; one alone gets its own again."""
    first, others = members[0], members[1:]
    found = {t: findings[t.name] for t in members}
    before = {t: await _counters(http, t) for t in members}
    for pause in _PAUSES_S:
        prompts = {t: await _ask_new(http, t, found) for t in (first, *others[:1])}
        await asyncio.sleep(pause)
        handed = {t: prompts[first] for t in others} | {first: prompts[others[0] if others else first]}
        await asyncio.gather(*(_ask(http, t, prompt, found) for t, prompt in handed.items() if prompt))
        for t in members:
            gained = {k: v - before[t].get(k, 0) for k, v in (await _counters(http, t)).items()}
            found[t] = _counted(t, found[t], gained)
        if not others or all(t.external_cache_hit(found[t]) for t in members):
            break
    return list(found.values())


def _counted(t: RankTarget, f: Finding, gained: dict[str, int]) -> Finding:
    completion = f.completion
    if completion == UNFINISHED:
        what = "requests with external hits do" if gained.get("external_hits") else "a prompt of several blocks does"
        completion = f"{what} not finish, short ones do"
    return replace(
        f,
        completion=completion,
        local_hits=gained.get("local_hits", 0),
        external_hits=gained.get("external_hits", 0) if t.external else NOT_CONFIGURED,
        external_queries=gained.get("external_queries", 0) if t.external else NOT_CONFIGURED,
    )


async def _ask_new(http: aiohttp.ClientSession, t: RankTarget, found: dict[RankTarget, Finding]) -> str:
    """The prompt that was answered, empty for none; a model too small for it gets a shorter one."""
    words = t.words
    while True:
        prompt = long_prompt(words)
        status = await _ask(http, t, prompt, found)
        if status != 400 or words == shorter(words):
            return prompt if status == 200 else ""
        words = shorter(words)


async def _ask(http: aiohttp.ClientSession, t: RankTarget, prompt: str, found: dict[RankTarget, Finding]) -> int:
    """The HTTP status, 0 for none. A rank that has failed once is not asked again."""
    if not found[t].good:
        return 0
    try:
        status, _ = await within(complete(http, t.url, t.model, prompt, 2, t.key), LONG_S)
    except asyncio.TimeoutError:
        found[t] = replace(found[t], completion=UNFINISHED)
        return 0
    except aiohttp.ClientError as e:
        found[t] = replace(found[t], completion=f"a prompt of several blocks: {reason(e)}")
        return 0
    if status >= 500:
        found[t] = replace(found[t], completion=f"a prompt of several blocks: HTTP {status}")
    return status


async def _counters(http: aiohttp.ClientSession, t: RankTarget) -> dict[str, int]:
    """The rank's cache counters in tokens, 0 for one that it does not have; nothing where they cannot be read."""
    try:
        async with http.get(f"{t.url}/metrics", ssl=UNVERIFIED) as response:
            text = await response.text()
    except (aiohttp.ClientError, asyncio.TimeoutError):
        return {}
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {k: int(sum(s.value for s in samples if s.name == name)) for k, name in _COUNTERS.items()}
