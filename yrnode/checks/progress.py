"""Whether a rank that was asked for something moves: the progress ledger.

Its gauges lie in a hang (nothing runs, nothing waits), because the engine publishes them. `/load` is counted in the
API server; what moves is told by all series of the engine together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import aiohttp

from yrnode.checks import counters
from yrnode.checks.base import Stateless, Target, Tools
from yrnode.checks.each import worst
from yrnode.checks.http import UNVERIFIED, reason
from yrnode.checks.ledger import Ledger, Marks
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown
from yrnode.store.transport import within

log = logging.getLogger("yrnode.checks")

QUIET_PERIODS = 5
COUNT_S = 10.0
"""The cache counters of an idle rank are read so often: requests come and go between two looks."""
PATIENCE_S = 2.0
MARGIN_S = 0.2
"""Of the check's own time, for what comes after the count."""
_SERIES = b"vllm:"
# counted in the API server when a client goes away, whatever the engine does
_NOT_THE_ENGINE = (b"vllm:request_", b"vllm:e2e_request_")
_IN_FLIGHT = (b"vllm:num_requests_running{", b"vllm:num_requests_waiting{")
_GENERATED = b"vllm:generation_tokens_total{"
_ENGINE = b'engine="'
Seen = tuple[Marks | None, int]
"""An engine's series, None where there are none, and the requests that it has not finished, as it sees them."""


class ProgressCheck(Stateless):
    """params: `url`, `load` (whether the server counts its load), `stall_timeout_s`, and where there are several
    engines behind the server `ranks`: each is judged for itself.

    Fails when nothing has moved for five periods. facts: `still_s`, for how long nothing has moved, and `limit_s`,
    from which on that is a hang although the processes work: `stall_timeout_s`, or twice the longest stand that has
    ever ended by itself. While requests are stuck, or prompts from the external cache lost: `several_s`, for how long
    there have always been several that are not finished, and `stuck_s`, for how long nothing but canaries has moved.
    """

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._quiet_s = QUIET_PERIODS * spec.period_s
        self._counted_at: float | None = None
        self._busy = True

    async def probe(self, target: Target) -> Result:
        began = self.clock()
        several: tuple[int, ...] = self.spec.params.get("ranks", ())
        targets = [replace(target, engine=rank) for rank in several] or [target]
        ledgers = [self.ledger(t) for t in targets]
        missed = any(ledger.missed for ledger in ledgers)
        try:
            load = await self._load() if self.param("load") else None
            page = await self._page() if load or load is None or missed else b""
            seen = read_pages(page, several) if several else [read_page(page)]
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, KeyError, TypeError) as e:
            return unknown(f"progress cannot be read: {reason(e)}")
        now = self.clock()
        found = []
        for ledger, in_flight, (marks, unfinished) in zip(ledgers, shares(load, seen), seen, strict=True):
            ledger.quiet_s = self._quiet_s
            ledger.read(in_flight, marks, now, unfinished)
            found.append(self._judge(ledger, in_flight, marks, now))
        weight = [(ledger.missed, ledger.still_s(now)) for ledger in ledgers]
        verdict = worst(several, found, weight) if several else found[0]
        try:
            await self._count(target, page, now, began + self.spec.timeout_s - MARGIN_S - now)
        except Exception as e:
            # what it counts is for people: it must not change what is known of the rank
            log.debug("the cache counters of %s cannot be read: %r", target.component, e)
        return verdict

    def _judge(self, ledger: Ledger, in_flight: int, marks: Marks | None, now: float) -> Result:
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

    async def _count(self, target: Target, page: bytes, now: float, left_s: float) -> None:
        """Keep what the caches have counted. An idle rank's page is read for that alone: now and then, and once when
        its last request has ended. It is no evidence of anything else. `left_s`: the time that it may take."""
        busy = bool(page)
        due = busy or self._busy or self._counted_at is None or now - self._counted_at >= COUNT_S
        self._busy = busy
        if not due:
            return
        self._counted_at = now
        several: tuple[int, ...] = self.spec.params.get("ranks", ())
        if not busy:
            page = await within(self._page(), max(0.0, min(PATIENCE_S, left_s)))
        found = counters.read(page, several)
        group = target.component.rpartition("/")[0]
        names = [f"{group}/{rank}" for rank in several] or [target.component]
        for name, read in zip(names, found, strict=True):
            if read is not None:
                life, counts = read
                self.tools.hits.note(name, (target.instance, life), counts, now)

    async def _load(self) -> int | None:
        """Requests in flight; None where the server does not say."""
        async with self.tools.http.get(f"{self.param('url')}/load", ssl=UNVERIFIED) as response:
            if response.status != 200:
                return None
            return int((await response.json(content_type=None))["server_load"])

    async def _page(self) -> bytes:
        async with self.tools.http.get(f"{self.param('url')}/metrics", ssl=UNVERIFIED) as response:
            return await response.read() if response.status == 200 else b""


def read_page(page: bytes) -> Seen:
    return _seen(_engine_lines(page))


def read_pages(page: bytes, ranks: Sequence[int]) -> list[Seen]:
    """What each of several engines publishes."""
    lines: dict[bytes, list[bytes]] = {b"%d" % rank: [] for rank in ranks}
    for line in _engine_lines(page):
        lines.get(line.partition(_ENGINE)[2].partition(b'"')[0], []).append(line)
    return [_seen(own) for own in lines.values()]


def shares(load: int | None, seen: Sequence[Seen]) -> list[int]:
    """Requests in flight at each engine, `load` (None: not told) at all together.

    Where there are several, what none of them owns up to may be at any of those that say they have none.
    """
    if load is not None and len(seen) == 1:
        return [load]
    own = [unfinished for _, unfinished in seen]
    hidden = max(0, (load or 0) - sum(own))
    return [n or hidden for n in own]


def _engine_lines(page: bytes) -> list[bytes]:
    return [x for x in page.split(b"\n") if x.startswith(_SERIES) and not x.startswith(_NOT_THE_ENGINE)]


def _seen(lines: list[bytes]) -> Seen:
    gauges = [float(x.rpartition(b" ")[2]) for x in lines if x.startswith(_IN_FLIGHT)]
    tokens = [x for x in lines if b"tokens" in x.partition(b"{")[0]]
    generated = sum(float(x.rpartition(b" ")[2]) for x in tokens if x.startswith(_GENERATED))
    marks = Marks(hash(b"\n".join(lines)), hash(b"\n".join(tokens)), int(generated)) if lines else None
    return marks, int(sum(gauges))
