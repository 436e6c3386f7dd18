"""Set on one node's worker and get on another's, measured: does the cache carry what it is given, and how fast?

Each of several helpers asks for itself, in a process of its own: the SDK holds the interpreter's lock during a call.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from yrnode.checks.http import reason
from yrnode.checks.kv import LOADING_S, Helper
from yrnode.store.transport import within

HELPER = Path(__file__).with_name("kv_pair_helper.py")
PREFIX = "yrnode-kv-check-"
TIMEOUT_MS = 5000
CALL_S = 15.0
"""One call, with the SDK's own retries and the other client's connection."""
LONGEST_S = 240.0
TTL_S = 300
"""What could not be deleted is gone by then: longer than all of it may take."""
SHARE = 4
"""At most this part of the shared memory is used: it is a live cache."""
MOST_AT_ONCE = 32
_DELETE = 500


class Broken(Exception):
    """It could not be measured: one line that says why."""


@dataclass(frozen=True)
class Ask:
    """`setter` and `getter`: the workers' host:port. `sizes` in bytes, `count` keys of each, `at_once` helpers."""

    setter: str
    getter: str
    sizes: tuple[int, ...]
    count: int
    at_once: int
    python: str
    env: Mapping[str, str]
    log: Path


@dataclass
class Size:
    """What came of the keys of one size. `set_s` and `get_s`: seconds of each call that was answered."""

    size: int
    keys: int
    hits: int = 0
    missed: int = 0
    differ: int = 0
    failed: int = 0
    error: str = ""
    set_s: list[float] = field(default_factory=list)
    get_s: list[float] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.hits == self.keys

    def fail(self, error: str) -> None:
        self.failed += 1
        self.error = self.error or error

    def as_dict(self) -> dict[str, Any]:
        told = {k: getattr(self, k) for k in ("size", "keys", "hits", "missed", "differ", "failed", "error")}
        return {**told, "set_ms": latencies(self.set_s), "get_ms": latencies(self.get_s)}


def latencies(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50 and p99 in milliseconds, None where nothing was measured."""
    return {name: _ms(seconds, share) for name, share in (("p50", 0.5), ("p99", 0.99))}


def _ms(seconds: Sequence[float], share: float) -> float | None:
    """The nearest rank: the smallest value that so large a share of all does not exceed."""
    if not seconds:
        return None
    at = -(-len(seconds) * round(share * 100) // 100) - 1
    return round(1000 * sorted(seconds)[max(0, at)], 3)


async def measure(ask: Ask) -> tuple[list[Size], int]:
    """What came of each size, and how many keys could not be deleted; they expire. Broken where nothing can be told.

    Cancel to give up: what was set is deleted all the same.
    """
    run = _Run(ask)
    task = asyncio.create_task(run.all_sizes())
    try:
        done, _ = await asyncio.wait({task}, timeout=LONGEST_S)
        if not done:
            raise Broken(f"not done within {LONGEST_S:.0f} s; ask for fewer keys: --count, --sizes")
        task.result()
    finally:
        await _end(task)
        left = await run.clean_up()
    return run.found, left


class _Run:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._helpers: list[Helper] = []
        self._keys: list[str] = []
        self.found: list[Size] = []

    async def all_sizes(self) -> None:
        for address in dict.fromkeys((self._ask.setter, self._ask.getter)):
            await _listens(address)
        began = min(self._ask.at_once, self._ask.count)
        self._helpers = [self._start() for _ in range(began)]
        await _together(self._connect(h) for h in self._helpers)
        run_id = secrets.token_hex(6)
        for size in self._ask.sizes:
            keys = [f"{PREFIX}{run_id}-{size}-{i}" for i in range(self._ask.count)]
            found = Size(size, len(keys))
            self.found.append(found)
            digests: dict[str, str] = {}
            await self._each(keys, partial(self._set, found, digests))
            await self._each(list(digests), partial(self._get, found, digests))

    def _start(self) -> Helper:
        a = self._ask
        argv = [a.python, str(HELPER), a.setter, a.getter, str(TIMEOUT_MS), str(TTL_S)]
        try:
            return Helper(argv, a.env, a.log)
        except OSError as e:
            raise Broken(f"the SDK's helper cannot be started with {a.python}: {e.strerror}") from None

    async def _connect(self, helper: Helper) -> None:
        await helper.connect()
        greeting = await helper.greet(LOADING_S)
        if not greeting or not greeting.get("hello"):
            said = (greeting or {}).get("error", "it says nothing")
            raise Broken(f"the datasystem's SDK cannot be loaded by {self._ask.python}: {said}")
        answer = await self._call(helper, {"connect": True})
        if "error" in answer:
            raise Broken(f"no connection: {answer['error']}")

    async def _each(self, keys: list[str], do: Callable[[Helper, str], Awaitable[None]]) -> None:
        """Every key by the next helper that is free."""
        left = iter(keys)

        async def work(helper: Helper) -> None:
            for key in left:
                await do(helper, key)

        await _together(work(h) for h in self._helpers)

    async def _set(self, found: Size, digests: dict[str, str], helper: Helper, key: str) -> None:
        self._keys.append(key)
        answer = await self._call(helper, {"set": key, "size": found.size})
        if "error" in answer:
            found.fail(f"set: {answer['error']}")
        else:
            found.set_s.append(answer["s"])
            digests[key] = answer["digest"]

    async def _get(self, found: Size, digests: dict[str, str], helper: Helper, key: str) -> None:
        answer = await self._call(helper, {"get": key})
        if "error" in answer:
            found.fail(f"get: {answer['error']}")
            return
        found.get_s.append(answer["s"])
        if answer["digest"] is None:
            found.missed += 1
        elif answer["digest"] == digests[key]:
            found.hits += 1
        else:
            found.differ += 1

    async def _call(self, helper: Helper, request: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await within(helper.ask(request), CALL_S)
        except asyncio.TimeoutError:
            raise Broken(f"the SDK has not come back from a call within {CALL_S:.0f} s") from None
        if answer is None:
            raise Broken("the SDK's helper has ended in the middle of a call")
        return answer

    async def clean_up(self) -> int:
        """Delete every key that was set, as far as it may be, and end the helpers; how many are left."""
        left = len(self._keys)
        # one that was given up in a call may still do what it was asked
        await asyncio.gather(*(h.close() for h in self._helpers if not h.usable))
        self._helpers = [h for h in self._helpers if h.usable]
        try:
            if self._keys:
                left = await within(self._delete(), CALL_S)
        except (asyncio.TimeoutError, Broken):
            pass
        finally:
            await asyncio.gather(*(h.close() for h in self._helpers))
        return left

    async def _delete(self) -> int:
        """By a helper that is free, or by a new one where all of them were given up in a call."""
        if not self._helpers:
            self._helpers.append(self._start())
            await self._connect(self._helpers[0])
        helper, left = self._helpers[0], 0
        for at in range(0, len(self._keys), _DELETE):
            keys = self._keys[at : at + _DELETE]
            left += (await self._call(helper, {"delete": keys})).get("left", len(keys))
        return left


async def _together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of it; when one fails, the others are ended before it is told."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _end(*tasks)


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _listens(address: str) -> None:
    """The SDK takes seconds to say in many words that nobody is there."""
    host, _, port = address.rpartition(":")
    try:
        _, writer = await within(asyncio.open_connection(host, int(port)), 3.0)
        writer.close()
    except asyncio.TimeoutError:
        raise Broken(f"no worker answers on {address} in time; see yrnode status there") from None
    except OSError as e:
        raise Broken(f"no worker answers on {address}: {reason(e)}; see yrnode status there") from None


def too_much(sizes: Sequence[int], count: int, shared_memory: int) -> str:
    """Why it is not asked for, empty where it is. Bytes."""
    whole = sum(sizes) * count
    if whole <= shared_memory // SHARE:
        return ""
    return (
        f"{whole >> 20} MB are more than a quarter of the worker's {shared_memory >> 20} MB of shared memory; "
        "write a smaller --count or smaller --sizes"
    )
