"""The front end's side of the engines: requests out, tokens and statistics in."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from yrnode.demo.engine.flags import Options
from yrnode.demo.engine.link import Link
from yrnode.demo.engine.metrics import EngineMetrics

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class EngineDeadError(RuntimeError):
    """The engine is gone: HTTP 500."""


@dataclass
class Flight:
    """One request in an engine; its queue brings (text, finish reason) or the exception that ends it."""

    engine: Engine
    prompt_tokens: int
    started: bool = False
    queue: asyncio.Queue[tuple[str, str | None] | Exception] = field(default_factory=asyncio.Queue)


@dataclass
class Engine:
    """One EngineCore as the front end knows it. `local` ones are watched, headless ones are not."""

    metrics: EngineMetrics
    writer: asyncio.StreamWriter
    local: bool
    sent: int = 0
    flights: dict[str, Flight] = field(default_factory=dict)

    def send(self, message: dict[str, Any]) -> None:
        """Queue without waiting: a frozen engine does not stop the API server."""
        with contextlib.suppress(OSError):
            self.writer.write(json.dumps(message).encode() + b"\n")


class Frontend:
    """All engines of one API server."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.engines: list[Engine] = []
        self.dead = False
        self.stopping = False
        self.on_death: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self, fronts: dict[int, Link]) -> None:
        """Take over the links, which no more than blocking reads have used so far."""
        for rank, link in sorted(fronts.items()):
            link.sock.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=link.sock, limit=1 << 26)
            engine = Engine(EngineMetrics(rank), writer, local=rank in self.options.local_ranks)
            self.engines.append(engine)
            self._tasks.append(asyncio.get_running_loop().create_task(self._read(engine, reader)))

    async def _read(self, engine: Engine, reader: asyncio.StreamReader) -> None:
        line = b""
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                message = json.loads(line)
                if message["op"] == "out":
                    self._take(engine, message)
        if engine.local and not self.dead and not self.stopping:
            self.dead = True
            for e in self.engines:
                self._end(e, EngineDeadError(DEAD))
            self.on_death()

    def _take(self, engine: Engine, message: dict[str, Any]) -> None:
        engine.metrics.stats = message["stats"]
        prompt = generated = 0
        for request_id, text, reason in message["outs"]:
            flight = engine.flights.get(request_id)
            if flight is None:
                continue
            if not flight.started:
                flight.started = True
                prompt += flight.prompt_tokens
            generated += 1
            if reason:
                engine.metrics.finished[reason] += 1
                del engine.flights[request_id]
            flight.queue.put_nowait((text, reason))
        if generated:
            engine.metrics.iteration(prompt, generated)

    def add(
        self, request_id: str, tokens: list[int], max_tokens: int, ignore_eos: bool, stuck: bool, rank: int | None
    ) -> Flight:
        """Send a request to the engine that it asks for by `rank`, or to the least loaded one.

        EngineDeadError, RuntimeError during the drain, or LookupError where there is no such rank.
        """
        if self.dead:
            raise EngineDeadError(DEAD)
        if self.stopping:
            raise RuntimeError("cannot schedule new futures after shutdown")
        able = [e for e in self.engines if rank in (None, e.metrics.rank)] if len(self.engines) > 1 else self.engines
        if not able:
            raise LookupError(f"data_parallel_rank {rank} is out of range [0, {len(self.engines)}).")
        engine = min(able, key=lambda e: (len(e.flights), e.sent))
        engine.sent += 1
        flight = engine.flights[request_id] = Flight(engine, len(tokens))
        engine.send(
            {
                "op": "add",
                "id": request_id,
                "tokens": tokens,
                "max": max_tokens,
                "ignore_eos": ignore_eos,
                "stuck": stuck,
            }
        )
        # all of them step when one has work: that the one has died does not keep the others from it
        for other in self.engines:
            if other.local and other is not engine:
                other.send({"op": "wake"})
        return flight

    def abort(self, request_id: str, flight: Flight) -> None:
        """Drop a request whose client is gone; no effect on one that has ended."""
        if flight.engine.flights.pop(request_id, None):
            flight.engine.metrics.finished["abort"] += 1
            flight.engine.send({"op": "abort", "id": request_id})

    def cut(self) -> None:
        """The end: what is in flight gets what there is so far."""
        for engine in self.engines:
            self._end(engine, None)

    def _end(self, engine: Engine, error: Exception | None) -> None:
        for flight in engine.flights.values():
            flight.queue.put_nowait(error or ("", "abort"))
        engine.flights.clear()
