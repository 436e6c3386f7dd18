"""A completion of one token on the rank's own port: the only proof that an engine generates.

`/health` answers 200 from a frozen engine. Judged by `finish_reason` and `usage`: the text of one token may be empty.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

import aiohttp

from yrnode.checks.base import Stateless, Target
from yrnode.checks.http import UNVERIFIED, blamed, reason
from yrnode.model.cover import short
from yrnode.model.verdict import Result, fail, ok, unknown

WORDS = 320
"""Of a long prompt, at least a token each: more than two blocks of 128 tokens."""
_SHORTEST = 40
_FINISHED = ("length", "stop", "tool_calls")


class CompletionCheck(Stateless):
    """params: `url` (of the server, with root path), `model`, `key` (empty for none)."""

    async def probe(self, target: Target) -> Result:
        try:
            status, body = await complete(
                self.tools.http,
                self.param("url"),
                self.param("model"),
                f"canary {time.time_ns()}",
                1,
                self.param("key"),
            )
        except aiohttp.ClientError as e:
            return blamed(e, f"completion: {reason(e)}")
        return judge(status, body)


async def complete(
    http: aiohttp.ClientSession,
    url: str,
    model: str,
    prompt: str,
    max_tokens: int,
    key: str = "",
    rank: int | None = None,
) -> tuple[int, Any]:
    """One completion without streaming: HTTP status and the decoded body (text where it is no JSON).

    `rank`: the engine that is to answer, of several behind one server.
    """
    request = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
    return await _post(http, f"{url}/v1/completions", request, key, headers)


async def chat(
    http: aiohttp.ClientSession, url: str, model: str, text: str, max_tokens: int, key: str = ""
) -> tuple[int, Any]:
    """The same as a chat of one message. Its content may be null: a reasoning parser puts the text elsewhere."""
    messages = [{"role": "user", "content": text}]
    request = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
    return await _post(http, f"{url}/v1/chat/completions", request, key, {})


async def _post(
    http: aiohttp.ClientSession, url: str, request: dict[str, Any], key: str, headers: dict[str, str]
) -> tuple[int, Any]:
    who = {"Authorization": f"Bearer {key}"} if key else {}
    async with http.post(url, json=request, headers={**headers, **who}, ssl=UNVERIFIED) as response:
        try:
            return response.status, await response.json(content_type=None)
        except ValueError:
            return response.status, await response.text()


def long_prompt(words: int) -> str:
    """A new prompt of several blocks, which no cache can hold yet."""
    return " ".join(secrets.token_hex(1) for _ in range(words))


def shorter(words: int) -> int:
    """The next length to try where a prompt was refused, which may be for its length; the same at the end."""
    return words // 2 if words > _SHORTEST else words


def judge(status: int, body: Any, *, by_router: bool = False) -> Result:
    """What the answer proves. A refusal that is about us, not about the engine, is unknown.

    `by_router`: what came through a router, which may leave the usage out.
    """
    if status in (401, 403):
        return _refused(f"canary not authorised (HTTP {status})")
    if status in (400, 404, 405, 422, 501):
        return _refused(f"canary does not fit this server (HTTP {status}: {_message(body)})")
    if status != 200:
        return fail(f"completion: HTTP {status}: {_message(body)}")
    try:
        finished = body["choices"][0]["finish_reason"]
        tokens = int(body["usage"]["completion_tokens"]) if body.get("usage") or not by_router else 1
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return fail(f"completion: HTTP 200, but no completion in it: {_message(body)}")
    if finished not in _FINISHED or tokens < 1:
        return fail(f"completion: finish_reason {finished}, {tokens} tokens")
    return ok(f"completion: {tokens} token, finish_reason {finished}")


def _refused(why: str) -> Result:
    """It is about us: the server serves, and whether its engine generates stays open."""
    return unknown(f"{why}: the server answers, no token was generated", proves=True, refused=1)


def _message(body: Any) -> str:
    if isinstance(body, dict):
        error = body.get("error", body)
        body = error.get("message", error) if isinstance(error, dict) else error
    return short(" ".join(str(body).split()), 160)
