"""Whether a prompt that the external cache holds is answered.

A rank whose link to the cache is dead answers every short prompt: it retrieves nothing. So a prompt of several blocks
goes to one rank of a group, which stores it, and later to another, which finds it there. Only when a short prompt
that was sent later is answered first is it the link, and not the rank, that stands.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import aiohttp

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.checks.completion import WORDS, complete, judge, long_prompt, shorter
from yrnode.checks.http import UNVERIFIED, blamed, reason
from yrnode.checks.ledger import Ledger
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict, fail, ok, unknown
from yrnode.store.transport import within

FIRST_S = 30.0
"""The first long prompt after a start may wait for a compilation."""
LONGEST_PAUSE = 16
"""Times the usual one: an engine may keep the blocks of each prompt that it waits for."""
MOST_PATIENCE = 8
"""Times the usual one, after several that were lost: a cache that is slow is no dead link."""
_HITS = b"vllm:external_prefix_cache_hits_total{"


class RetrievalCheck(Stateless):
    """params: `url`, `model`, `key`, `group`, `idle_s` (from one prompt to the next), `answer_s` (patience),
    `words` (length of a prompt, more than a block), and where there are several engines `rank`, the one that is
    asked.

    facts: `lost`, how many prompts in a row were not answered while a shorter one, sent later, was. That the cache
    did not hold a prompt is no fault.
    """

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._last: Result | None = None
        self._asked_at = 0.0
        self._asked: set[str] = set()
        self._proven = False
        self._retrieved = False
        self._words = int(spec.params.get("words", WORDS))
        self._good = ""

    async def probe(self, target: Target) -> Result:
        ledger = self.ledger(target)
        if self._last is None or not self._proven:
            # stored, then read: by another rank's prompt where there is one, by a part that is not here any more else
            result = await self._store(target, ledger, FIRST_S)
            return await self._read(target, ledger) if result.verdict is Verdict.OK else result
        since_s = self.clock() - self._asked_at
        turn = self.tools.ledgers.turn(self.param("group"))
        pause_s = self.param("idle_s") * min(LONGEST_PAUSE, 2 ** max(0, ledger.lost - 1))
        # an engine that does not answer short prompts is the canary's to judge
        if since_s < pause_s or ledger.missed or ledger.stopped or turn.locked():
            return replace(self._last, evidence=f"{self._last.evidence}, {since_s:.0f} s ago")
        if ledger.lost:
            # asked for again, since what is stored anew says nothing about the link; long, so in nobody's turn
            return await self._read(target, ledger)
        if why := self.tools.unsure(self.param("group")):
            return replace(self._last, evidence=f"{self._last.evidence}; not asked while idle: {why}")
        async with turn:
            if self._retrieved or self._other(target) is None:
                return await self._store(target, ledger, self.param("answer_s"))
            return await self._read(target, ledger)

    def _other(self, target: Target) -> str | None:
        """The newest prompt that this instance has not had: another rank's, or its own before a restart."""
        prompts = self.tools.ledgers.prompts(self.param("group")).values()
        return next((p for p in reversed(prompts) if p not in self._asked), None)

    async def _store(self, target: Target, ledger: Ledger, patience_s: float) -> Result:
        while True:
            prompt = long_prompt(self._words)
            result = await self._ask(ledger, prompt, max(patience_s, self.param("answer_s")))
            if not result.facts.get("refused") or self._words == (fewer := shorter(self._words)):
                break
            # it may be too long for this model
            self._words = fewer
        self._retrieved = False
        if result.verdict is Verdict.OK:
            prompts = self.tools.ledgers.prompts(self.param("group"))
            prompts.pop(target.asked, None)
            prompts[target.asked] = prompt
        return result

    async def _read(self, target: Target, ledger: Ledger) -> Result:
        prompts = self.tools.ledgers.prompts(self.param("group"))
        prompt = self._other(target) or prompts[target.asked]
        self._retrieved = True
        return await self._ask(ledger, prompt, self.param("answer_s") * min(MOST_PATIENCE, 2**ledger.lost))

    async def _ask(self, ledger: Ledger, prompt: str, patience_s: float) -> Result:
        before, short, result = await self._hits(), None, None
        ledger.ask()
        long = asyncio.ensure_future(self._complete(prompt))
        try:
            await asyncio.wait({long}, timeout=patience_s)
            if not long.done():
                short = await self._short(ledger)
            if long.done():
                result = long.result()
        finally:
            long.cancel()
            ledger.asked()
        if result is not None and result.verdict is Verdict.OK:
            # at once: a reading that comes before would take its token for another's
            ledger.answer(self.clock())
        after = await self._hits()
        hits = None if before is None or after is None else max(0, after - before)
        self._last = self._judge(ledger, result, short, hits)
        if not self._last.facts.get("lost"):
            known = self.tools.ledgers.prompts(self.param("group")).values()
            self._asked = {prompt, *self._asked.intersection(known)}
        self._asked_at = self.clock()
        self._proven = self._proven or self._last.verdict is Verdict.OK or self._last.proves
        return self._last

    def _judge(self, ledger: Ledger, result: Result | None, short: Result | None, hits: int | None) -> Result:
        if result is None and (short is None or short.verdict is not Verdict.OK):
            return unknown("neither a prompt of several blocks nor a short one is answered in time")
        if result is None:
            ledger.lost += 1
            whose = "requests with external hits do" if hits else "a prompt of several blocks does"
            return fail(
                f"{whose} not finish, short ones do; the last that did: {self._good or 'none'}", lost=ledger.lost
            )
        if result.verdict is not Verdict.OK:
            return result
        if ledger.lost and hits == 0:
            return unknown("a prompt is answered that the cache does not hold any more", lost=ledger.lost)
        ledger.lost = 0
        if hits:
            self._good = time.strftime("%H:%M:%S UTC", time.gmtime())
        return ok(f"a prompt of several blocks is answered, {hits or 0} tokens of it from the external cache")

    async def _short(self, ledger: Ledger) -> Result:
        ledger.ask()
        try:
            result = await within(self._complete(f"canary {time.time_ns()}"), self.param("answer_s"))
        except asyncio.TimeoutError:
            return unknown("no answer")
        finally:
            ledger.asked()
        if result.verdict is Verdict.OK:
            ledger.answer(self.clock())
        return result

    async def _complete(self, prompt: str) -> Result:
        try:
            words = (self.param("url"), self.param("model"), prompt, 1, self.param("key"))
            return judge(*await complete(self.tools.http, *words, self.spec.params.get("rank")))
        except aiohttp.ClientError as e:
            return blamed(e, f"completion: {reason(e)}")

    async def _hits(self) -> int | None:
        """Tokens found in the external cache so far, by the engine's own word; None where it does not say."""
        try:
            async with self.tools.http.get(f"{self.param('url')}/metrics", ssl=UNVERIFIED) as response:
                page = await response.read() if response.status == 200 else b""
        except aiohttp.ClientError:
            return None
        rank = self.spec.params.get("rank")
        engine = b"" if rank is None else b'engine="%d"' % rank
        found = [float(x.rpartition(b" ")[2]) for x in page.split(b"\n") if x.startswith(_HITS) and engine in x]
        return int(sum(found)) if found else None
