"""A completion of one token, asked when nothing else proves that the engine generates.

Idle, at its own pace, one rank of a group at a time, while all of them are known to serve; in flight, only when
nothing moves. A rank that moves is not asked: a busy one answers late, which proves nothing. It is asked at once
where an engine process is stopped, and once more at once after each first miss.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import aiohttp

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.checks.completion import complete, judge
from yrnode.checks.http import blamed, reason
from yrnode.checks.ledger import Ledger
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict, fail, ok, unknown
from yrnode.store.transport import within

FIRST_S = 30.0
"""The first completion after a start may wait for a compilation."""
STOPPED_SHARE = 0.3
"""Of the usual patience, for an engine that is seen to be stopped."""
LATE_S = 0.5


class CanaryCheck(Stateless):
    """params: `url`, `model`, `key`, `group`, `idle_s` (from one idle canary to the next), `answer_s` (patience),
    and where there are several engines `rank`, the one that is asked.

    facts: `missed`, how many in a row were out of time. Only these are a sign of a hang. A refusal that is about us
    proves that the server serves; `refused` says so.
    """

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._last: Result | None = None
        self._asked_at = 0.0
        self._proven = False

    async def probe(self, target: Target) -> Result:
        ledger, now = self.ledger(target), self.clock()
        if self._last is None or not self._proven:
            return await self._ask(ledger, FIRST_S)
        if ledger.stopped:
            return await self._ask(ledger, 0.0)
        since_s = now - self._asked_at
        if ledger.missed or self._last.verdict is Verdict.FAIL:
            return await self._again(ledger, since_s)
        if ledger.still_s(now) >= ledger.quiet_s:
            return await self._ask(ledger)
        if since_s >= self.param("idle_s"):
            turn = self.tools.ledgers.turn(self.param("group"))
            if ledger.in_flight and ledger.stuck_s(now) < ledger.quiet_s:
                return ok(f"not asked: {ledger.in_flight} in flight and moving")
            if why := self.tools.unsure(self.param("group")):
                return replace(self._last, evidence=f"{self._last.evidence}; not asked while idle: {why}")
            if not turn.locked():
                async with turn:
                    return await self._ask(ledger)
        return replace(self._last, evidence=f"{self._last.evidence}, {since_s:.0f} s ago")

    async def _again(self, ledger: Ledger, since_s: float) -> Result:
        """After a miss once more at once, then with pauses; not while the engine moves for others."""
        last = self._last or unknown("not asked yet")
        if ledger.in_flight and not ledger.missed and ledger.still_s(self.clock()) < ledger.quiet_s:
            self._last = ok(f"not asked: {ledger.in_flight} in flight and moving")
            return self._last
        if ledger.missed == 1 or since_s >= self.param("answer_s"):
            return await self._ask(ledger)
        return last

    async def _ask(self, ledger: Ledger, patience_s: float | None = None) -> Result:
        self._last = await self._complete(ledger, patience_s)
        self._asked_at = self.clock()
        self._proven = self._proven or self._last.verdict is Verdict.OK or self._last.proves
        return self._last

    async def _complete(self, ledger: Ledger, patience_s: float | None) -> Result:
        answer_s: float = self.param("answer_s")
        if ledger.stopped:
            answer_s *= STOPPED_SHARE
        elif patience_s is not None:
            answer_s = max(patience_s, answer_s)
        began, moves = time.monotonic(), ledger.moves
        words = (self.param("url"), self.param("model"), f"canary {time.time_ns()}", 1, self.param("key"))
        rank = self.spec.params.get("rank")
        ledger.ask()
        try:
            status, body = await within(complete(self.tools.http, *words, rank), answer_s)
        except asyncio.TimeoutError:
            late_s = time.monotonic() - began - answer_s
            if late_s > LATE_S:
                return unknown(f"this daemon itself was held up for {late_s:.1f} s")
            if ledger.moves > moves:
                return unknown(f"canary: no token within {answer_s:g} s, while the engine moves for others")
            ledger.miss()
            return fail(f"canary: no token within {answer_s:g} s", missed=ledger.missed)
        except aiohttp.ClientError as e:
            return blamed(e, f"completion: {reason(e)}")
        finally:
            ledger.asked()
        result = judge(status, body)
        if result.verdict is Verdict.OK:
            ledger.answer(self.clock())
        return result
