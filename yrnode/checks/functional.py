"""The deployment guides' functional checks: health, a completion, and the same prompt a second time.

Through the router a chat, as a client sends it; an idle proxy picks the same two ranks each time, so every rank is
asked besides. One between prefill and decode answers alone too: without the router's transfer parameters a prefill
rank holds nothing for others, and a decode rank computes a short prompt itself.

For the external cache a prompt of several blocks goes to one rank and then to the others: a rank that has the prompt
in its own cache never asks the external one. A rank alone in its group gets it twice, and what its metrics say is
reported as it is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from yrnode.checks import counters
from yrnode.checks.completion import chat, complete, judge, long_prompt, shorter
from yrnode.checks.http import UNVERIFIED, reason
from yrnode.model.verdict import Result, Verdict
from yrnode.policy.hits import Counts, total
from yrnode.store.transport import within

NOT_CONFIGURED = "not configured"
TIMEOUT_S = 60.0
LONG_S = 20.0
UNFINISHED = "not finished"
# put into the external cache is asynchronous: a later try asks with a new prompt after a longer pause
_PAUSES_S = (0.3, 1.0, 3.0)
_CHAT_TOKENS = 8


@dataclass(frozen=True)
class RouterTarget:
    """The router, asked in the words of the ranks behind it. `key`: for requests, empty for none."""

    url: str
    model: str
    key: str


@dataclass(frozen=True)
class RankTarget:
    """One rank's server. `external`: it reads an external cache. `key`: for requests, empty for none.

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
    """What one rank did. `counts`: tokens, counted while the long prompts were sent. `external`: it reads an external
    cache."""

    name: str
    health: str
    completion: str
    external: bool = False
    counts: Counts = field(default_factory=Counts)

    @property
    def good(self) -> bool:
        return self.health == "ok" and self.completion == "ok"

    @property
    def external_hits(self) -> int | str:
        """Tokens, or "not configured"."""
        return int(self.counts.external_hits) if self.external else NOT_CONFIGURED

    @property
    def external_queries(self) -> int | str:
        return int(self.counts.external_queries) if self.external else NOT_CONFIGURED

    def as_dict(self) -> dict[str, Any]:
        return {
            "health": self.health,
            "completion": self.completion,
            "local_hits": int(self.counts.local_hits),
            "local_queries": int(self.counts.local_queries),
            "external_hits": self.external_hits,
            "external_queries": self.external_queries,
            "hit_rates": _rates(self.counts),
        }


@dataclass(frozen=True)
class Report:
    """`router`: "ok", or what a completion through it came to."""

    ranks: tuple[Finding, ...]
    router: str = NOT_CONFIGURED

    @property
    def completion(self) -> bool:
        return bool(self.ranks) and all(r.good for r in self.ranks)

    @property
    def external_hits(self) -> int | str:
        """Tokens found in the external cache, or "not configured" where no rank has one."""
        counted = [r.external_hits for r in self.ranks if isinstance(r.external_hits, int)]
        return sum(counted) if counted else NOT_CONFIGURED

    @property
    def counts(self) -> Counts:
        return total(r.counts for r in self.ranks)

    @property
    def good(self) -> bool:
        """The router and every rank serve, and an external cache that can be told from the local one was hit."""
        if self.router not in ("ok", NOT_CONFIGURED) or not all(r.good for r in self.ranks):
            return False
        groups_of_two = [r for r in self.ranks if isinstance(r.external_hits, int)]
        return len(groups_of_two) < 2 or bool(self.external_hits)

    def as_dict(self) -> dict[str, Any]:
        return {
            "good": self.good,
            "router": self.router,
            "completion": self.completion,
            "external_cache_hits": self.external_hits,
            "hit_rates": _rates(self.counts),
            "ranks": {r.name: r.as_dict() for r in self.ranks},
        }


def _rates(counts: Counts) -> dict[str, float | None]:
    return {"local": counts.local, "external": counts.external, "effective": counts.effective}


async def verify(targets: Sequence[RankTarget], router: RouterTarget | None = None) -> Report:
    """Check every rank and the router; never raises for what they do."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as http:
        findings = {t.name: await _serves(http, t) for t in targets}
        for group in dict.fromkeys(t.group for t in targets):
            members = [t for t in targets if t.group == group and findings[t.name].good]
            if members:
                findings |= {f.name: f for f in await _twice(http, members, findings)}
        through = await _through(http, router) if router else NOT_CONFIGURED
    return Report(tuple(findings[t.name] for t in targets), through)


async def _through(http: aiohttp.ClientSession, router: RouterTarget) -> str:
    words = (http, router.url, router.model, f"verify {secrets.token_hex(4)}", _CHAT_TOKENS, router.key)
    try:
        result = judge(*await chat(*words), by_router=True)
        if result.facts.get("refused"):
            # a model without a chat template
            result = judge(*await complete(*words), by_router=True)
    except (aiohttp.ClientError, asyncio.TimeoutError) as e:
        return reason(e) or "no answer"
    return _word(result)


def _word(result: Result) -> str:
    return "ok" if result.verdict is Verdict.OK else result.evidence


async def _serves(http: aiohttp.ClientSession, t: RankTarget) -> Finding:
    try:
        async with http.get(f"{t.url}/health", ssl=UNVERIFIED) as response:
            health = "ok" if response.status == 200 else f"HTTP {response.status}"
        result = judge(*await complete(http, t.url, t.model, f"verify {secrets.token_hex(4)}", 1, t.key))
    except (aiohttp.ClientError, asyncio.TimeoutError) as e:
        return Finding(t.name, reason(e) or "no answer", "not asked", t.external)
    return Finding(t.name, health, _word(result), t.external)


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
            was, now = before[t], await _counters(http, t)
            found[t] = _counted(found[t], (now.since(was) if was and now else None) or Counts())
        if not others or all(t.external_cache_hit(found[t]) for t in members):
            break
    return list(found.values())


def _counted(f: Finding, gained: Counts) -> Finding:
    completion = f.completion
    if completion == UNFINISHED:
        what = "requests with external hits do" if gained.external_hits else "a prompt of several blocks does"
        completion = f"{what} not finish, short ones do"
    return replace(f, completion=completion, counts=gained)


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


async def _counters(http: aiohttp.ClientSession, t: RankTarget) -> Counts | None:
    """The rank's cache counters in tokens, None where they cannot be read."""
    try:
        async with http.get(f"{t.url}/metrics", ssl=UNVERIFIED) as response:
            (read,) = counters.read(await response.read())
    except (aiohttp.ClientError, asyncio.TimeoutError, ValueError):
        return None
    return read[1] if read else None
