"""The scheduler of one EngineCore: which requests compute how many tokens in the next step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from yrnode.demo.engine.blocks import BlockPool, block_hashes
from yrnode.demo.engine.cache import LOST
from yrnode.demo.engine.flags import Options

WORDS = ("the", "a", "cache", "rank", "block", "token", "node", "ring", "lease", "key", "of", "and", "to", "in")
Lookup = Callable[[list[str]], int]


@dataclass
class Request:
    """One request; `computed` counts tokens of prompt and output that the KV cache holds."""

    id: str
    tokens: list[int]
    max_tokens: int
    ignore_eos: bool
    stuck: bool
    hashes: list[str]
    loading: bool = False  # waits for the external cache, for ever
    computed: int = 0
    generated: int = 0
    full: int = 0  # leading hashes that it holds in the pool
    blank: int = 0  # blocks that it holds besides
    saved: int = 0  # leading hashes that need no save: local or external hits, or saved before
    seed: bytes = field(default=b"")

    def word(self) -> str:
        """The next output token, the same for the same prompt."""
        digest = hashlib.sha256(self.seed + self.generated.to_bytes(4, "big")).digest()
        return " " + WORDS[digest[0] % len(WORDS)]

    def ends(self) -> str | None:
        """The finish reason once the last token is out."""
        if self.generated >= self.max_tokens:
            return "length"
        if not self.ignore_eos and self.generated >= 256 + self.seed[0]:
            return "stop"
        return None


@dataclass
class Scheduler:
    """First come, first served; decodes before prefills; prompts in chunks of what the step has left."""

    options: Options
    external_exists: Lookup | None
    external_get: Lookup | None
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    local_queries: int = 0
    local_hits: int = 0
    external_queries: int = 0
    external_hits: int = 0

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.options.num_blocks)
        self.to_save: list[str] = []

    def add(self, message: dict[str, Any]) -> None:
        tokens = message["tokens"]
        request = Request(
            id=message["id"],
            tokens=tokens,
            max_tokens=message["max"],
            ignore_eos=message["ignore_eos"],
            stuck=message["stuck"],
            hashes=block_hashes(tokens, self.options.block_size),
            seed=hashlib.sha256(repr(tokens).encode()).digest(),
        )
        self.waiting.append(request)

    def abort(self, request_id: str) -> None:
        for queue in (self.waiting, self.running):
            for request in [r for r in queue if r.id == request_id]:
                queue.remove(request)
                self._release(request)

    def has_work(self) -> bool:
        """Whether a step would move something. A stuck request that is admitted moves nothing."""
        return bool(self.waiting) or any(not r.stuck for r in self.running)

    def schedule(self) -> list[tuple[Request, int]]:
        """Requests of the next step with their token counts."""
        budget = self.options.max_batched
        step: list[tuple[Request, int]] = []
        movable = [r for r in self.running if not r.stuck]
        for request in sorted(movable, key=lambda r: r.generated == 0):
            budget = self._take(request, budget, step)
        while self.waiting and budget > 0 and self._computing() < self.options.max_num_seqs:
            request = self.waiting[0]
            need = -(-(len(request.tokens) + request.max_tokens) // self.options.block_size)
            if self.running and self._reserved() + need > self.pool.total:
                break
            self.waiting.pop(0)
            self.running.append(request)
            self._reuse(request)
            if not request.loading:
                budget = self._take(request, budget, step)
        return step

    def _computing(self) -> int:
        """Requests that are running: who waits for the external cache is not."""
        return sum(not r.loading for r in self.running)

    def _reserved(self) -> int:
        size = self.options.block_size
        return sum(-(-(len(r.tokens) + r.max_tokens) // size) for r in self.running)

    def _take(self, request: Request, budget: int, step: list[tuple[Request, int]]) -> int:
        """Give a request its share, and the blocks for it, before the workers compute."""
        count = min(budget, len(request.tokens) + request.generated - request.computed)
        if count <= 0:
            return budget
        need = -(-(request.computed + count) // self.options.block_size) - request.full - request.blank
        if need > 0:
            self.pool.grow(need)
            request.blank += need
        step.append((request, count))
        return budget - count

    def _reuse(self, request: Request) -> None:
        """Start from what the local cache has, then from what the external one adds to it.

        At least one token is computed always. External queries count only what was missing locally.
        """
        size, total = self.options.block_size, len(request.tokens)
        usable = request.hashes[: (total - 1) // size]
        local = 0
        if self.options.prefix_caching:
            local = self.pool.match(usable)
            self.pool.hold(usable[:local])
            self.local_queries += total
            self.local_hits += local * size
        request.full = local
        if self.external_exists and self.external_get:
            missing = usable[local:]
            found = self.external_exists(missing) if missing else 0
            self.external_queries += total - local * size
            self.external_hits += found * size
            got = self.external_get(missing[:found]) if found else 0
            if got == LOST:
                request.stuck = request.loading = True
                got = 0
            self.pool.grow(got)
            self.pool.fill(missing[:got])
            request.full += got
        request.computed = request.full * size
        request.saved = request.full

    def finish_step(self, step: list[tuple[Request, int]]) -> list[tuple[Request, str, str | None]]:
        """Account for a computed step; returns (request, new text, finish reason) of who got a token."""
        outputs = []
        for request, count in step:
            if request not in self.running:  # aborted meanwhile
                continue
            request.computed += count
            full = min(request.computed // self.options.block_size, len(request.hashes))
            new = request.hashes[request.full : full]
            self.pool.fill(new)
            request.full, request.blank = full, request.blank - len(new)
            self.to_save += request.hashes[request.saved : full]
            request.saved = max(request.saved, full)
            if not request.stuck and request.computed == len(request.tokens) + request.generated:
                text = request.word()
                request.generated += 1
                reason = request.ends()
                if reason:
                    self.running.remove(request)
                    self._release(request)
                outputs.append((request, text, reason))
        return outputs

    def _release(self, request: Request) -> None:
        self.pool.release(request.hashes[: request.full], request.blank)
        request.full = request.blank = 0

    def stats(self) -> dict[str, float]:
        """What the engine publishes after a step."""
        running = self._computing()
        return {
            "running": running,
            "waiting": len(self.waiting) + len(self.running) - running,
            "usage": self.pool.usage,
            "local_queries": self.local_queries,
            "local_hits": self.local_hits,
            "external_queries": self.external_queries,
            "external_hits": self.external_hits,
        }
