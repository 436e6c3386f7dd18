"""Whether a rank that was asked for something moves: the progress ledger.

Its gauges lie in a hang (nothing runs, nothing waits), because the engine publishes them. `/load` is counted in the
API server; what moves is told by all series of the engine together.
"""

from __future__ import annotations

import asyncio

import aiohttp

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.checks.http import UNVERIFIED, reason
from yrnode.checks.ledger import Marks
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown

QUIET_PERIODS = 5
_SERIES = b"vllm:"
# counted in the API server when a client goes away, whatever the engine does
_NOT_THE_ENGINE = (b"vllm:request_", b"vllm:e2e_request_")
_IN_FLIGHT = (b"vllm:num_requests_running{", b"vllm:num_requests_waiting{")


class ProgressCheck(Stateless):
    """params: `url`, `load` (whether the server counts its load), `stall_timeout_s`.

    Fails when nothing has moved for five periods. facts: `still_s`, for how long nothing has moved, and `limit_s`,
    from which on that is a hang although the processes work: `stall_timeout_s`, or twice the longest stand that has
    ever ended by itself. While requests are stuck, or prompts from the external cache lost: `several_s`, for how long
    there have always been several that are not finished, and `stuck_s`, for how long nothing but canaries has moved.
    """

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._quiet_s = QUIET_PERIODS * spec.period_s

    async def probe(self, target: Target) -> Result:
        ledger = self.ledger(target)
        ledger.quiet_s = self._quiet_s
        try:
            in_flight = await self._load() if self.param("load") else None
            marks, unfinished = None, 0
            if in_flight or in_flight is None or ledger.missed:
                marks, unfinished = await self._series()
                in_flight = unfinished if in_flight is None else in_flight
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, KeyError, TypeError) as e:
            return unknown(f"progress cannot be read: {reason(e)}")
        now = self.clock()
        ledger.read(in_flight, marks, now, unfinished)
        if in_flight == 0 and not ledger.missed:
            return ok("idle")
        still_s, stuck_s = ledger.still_s(now), ledger.stuck_s(now)
        limit_s = max(self.param("stall_timeout_s"), 2 * ledger.longest_s)
        many = f"{in_flight} in flight"
        if marks is None:
            return unknown(f"{many}; the engine publishes no series")
        if still_s >= self._quiet_s:
            text = f"{many}, nothing has moved for {still_s:.0f} s"
            return fail(
                f"{text} (of processes that work, {limit_s:.0f} s is a hang)", still_s=still_s, limit_s=limit_s
            )
        if stuck_s >= self._quiet_s:
            stuck = f"{many} without movement for {stuck_s:.0f} s, though a canary is answered"
            several_s = ledger.several_s(now)
            return fail(
                f"{stuck}: requests are stuck, not the rank", stuck_s=stuck_s, several_s=several_s, limit_s=limit_s
            )
        if ledger.lost:
            return ok(f"{many}, some of them move", several_s=ledger.several_s(now), limit_s=limit_s)
        return ok(f"{many}, moving")

    async def _load(self) -> int | None:
        """Requests in flight; None where the server does not say."""
        async with self.tools.http.get(f"{self.param('url')}/load", ssl=UNVERIFIED) as response:
            if response.status != 200:
                return None
            return int((await response.json(content_type=None))["server_load"])

    async def _series(self) -> tuple[Marks | None, int]:
        """The engine's series, None where there are none, and the requests in flight as the engine sees them."""
        async with self.tools.http.get(f"{self.param('url')}/metrics", ssl=UNVERIFIED) as response:
            page = await response.read() if response.status == 200 else b""
        return read_page(page)


def read_page(page: bytes) -> tuple[Marks | None, int]:
    lines = [x for x in page.split(b"\n") if x.startswith(_SERIES) and not x.startswith(_NOT_THE_ENGINE)]
    gauges = [float(x.rpartition(b" ")[2]) for x in lines if x.startswith(_IN_FLIGHT)]
    tokens = [x for x in lines if b"tokens" in x.partition(b"{")[0]]
    marks = Marks(hash(b"\n".join(lines)), hash(b"\n".join(tokens))) if lines else None
    return marks, int(sum(gauges))
