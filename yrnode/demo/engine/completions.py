"""The two completion endpoints: text and chat, whole and streamed."""

from __future__ import annotations

import json
import re
import time
import uuid
import zlib
from typing import Any

from aiohttp import web

from yrnode.demo.engine.flags import Options
from yrnode.demo.engine.frontend import Flight, Frontend

# A prompt with this word is taken by the engine and never moves, while others are answered.
STUCK = "[standin:stuck]"


def error_body(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class BadRequest(Exception):
    """An answer that is no completion."""

    def __init__(
        self, message: str, kind: str = "BadRequestError", status: int = 400, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, kind, status, param)


def tokenize(text: str) -> list[int]:
    """One token for about a word, the same in every process."""
    return [zlib.crc32(piece.encode()) for piece in re.findall(r"\s*\S{1,8}|\s+$", text)] or [0]


class Completions:
    """Parses, submits, and writes answers in OpenAI's shapes."""

    def __init__(self, options: Options, frontend: Frontend) -> None:
        self.options, self.frontend = options, frontend

    async def text(self, http: web.Request) -> web.StreamResponse:
        body = await self._body(http)
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            tokens = tokenize(prompt)
        elif isinstance(prompt, list) and prompt and all(isinstance(t, int) for t in prompt):
            tokens = prompt
        else:
            raise BadRequest("prompt must be a string or a list of token ids")
        max_tokens = body.get("max_tokens")
        return await self._answer(http, body, tokens, 16 if max_tokens is None else max_tokens, chat=False)

    async def chat(self, http: web.Request) -> web.StreamResponse:
        body = await self._body(http)
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise BadRequest("messages must be a list of messages")
        tokens = tokenize("\n".join(f"<|{m.get('role')}|>{_plain(m.get('content'))}" for m in messages))
        max_tokens = body.get("max_completion_tokens") or body.get("max_tokens")
        if max_tokens is None:
            max_tokens = max(1, self.options.max_model_len - len(tokens))
        return await self._answer(http, body, tokens, max_tokens, chat=True)

    async def _body(self, http: web.Request) -> dict[str, Any]:
        try:
            body = json.loads(await http.read())
        except ValueError as error:
            raise BadRequest(f"JSON decode error: {error}") from None
        if not isinstance(body, dict):
            raise BadRequest("the body must be a JSON object")
        model = body.get("model")
        if model is not None and model not in self.options.served:
            raise BadRequest(f"The model `{model}` does not exist.", "NotFoundError", 404, "model")
        if self.options.pooling:
            raise BadRequest("The model does not support Completions API")
        return body

    async def _answer(
        self, http: web.Request, body: dict[str, Any], tokens: list[int], max_tokens: Any, chat: bool
    ) -> web.StreamResponse:
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise BadRequest(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
        limit = self.options.max_model_len
        if len(tokens) + max_tokens > limit:
            raise BadRequest(
                f"This model's maximum context length is {limit} tokens. However, you requested {max_tokens} "
                f"output tokens and your prompt contains {len(tokens)} input tokens."
            )
        stuck = STUCK in json.dumps(body.get("messages") if chat else body.get("prompt"))
        request_id = ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex
        reply = _Reply(request_id, body.get("model") or self.options.served[0], len(tokens), chat)
        # what a model thinks comes first, and a short answer is nothing else
        reply.reasoning = self.options.reasoning
        word = http.headers.get("X-data-parallel-rank", "")
        rank = int(word) if word.isdecimal() else None
        try:
            flight = self.frontend.add(request_id, tokens, max_tokens, bool(body.get("ignore_eos")), stuck, rank)
        except LookupError as error:
            raise BadRequest(str(error)) from None
        try:
            if body.get("stream"):
                usage = bool((body.get("stream_options") or {}).get("include_usage"))
                return await self._stream(http, flight, reply, usage)
            text, reason = [], None
            while reason is None:
                piece, reason = await _next(flight)
                text.append(piece)
            return web.json_response(reply.whole("".join(text), reason, sum(map(bool, text))))
        finally:
            self.frontend.abort(request_id, flight)

    async def _stream(self, http: web.Request, flight: Flight, reply: _Reply, usage: bool) -> web.StreamResponse:
        first = await _next(flight)  # an engine that dies before the first token is still a 500
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        count = 0

        async def event(data: dict[str, Any]) -> None:
            await response.write(b"data: " + json.dumps(data).encode() + b"\n\n")

        piece, reason = first
        try:
            while True:
                count += bool(piece)
                await event(reply.chunk(piece, reason))
                if reason:
                    break
                piece, reason = await _next(flight)
            if usage:
                await event(reply.usage_chunk(count))
        except RuntimeError as error:
            await event(error_body(str(error), "InternalServerError", 500))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


class _Reply:
    """Shapes of one request's answer."""

    def __init__(self, request_id: str, model: str, prompt_tokens: int, chat: bool) -> None:
        self.prompt_tokens, self.chat, self.reasoning = prompt_tokens, chat, False
        self.head = {"id": request_id, "created": int(time.time()), "model": model}

    def _usage(self, count: int) -> dict[str, int]:
        total = self.prompt_tokens + count
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": count, "total_tokens": total}

    def whole(self, text: str, reason: str, count: int) -> dict[str, Any]:
        said = {"content": None, "reasoning_content": text} if self.reasoning else {"content": text}
        content = {"message": {"role": "assistant", **said}} if self.chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self.head, "object": kind, "choices": [choice], "usage": self._usage(count)}

    def chunk(self, text: str, reason: str | None) -> dict[str, Any]:
        delta = {"reasoning_content" if self.reasoning else "content": text}
        content = {"delta": delta} if self.chat else {"text": text}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason}
        return {**self.head, "object": self._chunk_kind, "choices": [choice]}

    def usage_chunk(self, count: int) -> dict[str, Any]:
        return {**self.head, "object": self._chunk_kind, "choices": [], "usage": self._usage(count)}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"


async def _next(flight: Flight) -> tuple[str, str | None]:
    item = await flight.queue.get()
    if isinstance(item, Exception):
        raise item
    return item


def _plain(content: Any) -> str:
    """Text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
