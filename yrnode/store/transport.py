"""HTTP to etcd's gateway."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from typing import TypeVar

import aiohttp

from yrnode.model.cover import short
from yrnode.store import wire
from yrnode.store.caller import REFUSALS, Caller, corrupt, line, refusal, within
from yrnode.store.credentials import NONE, Credentials
from yrnode.store.errors import StoreUnavailable
from yrnode.store.wire import Json, Request

__all__ = ["Transport", "within"]

T = TypeVar("T")


class Transport(Caller):
    """One HTTP session with the endpoints of one etcd cluster."""

    def __init__(self, endpoints: Sequence[str], *, timeout_s: float = 2.0, credentials: Credentials = NONE) -> None:
        super().__init__(endpoints, timeout_s=timeout_s, credentials=credentials)
        self._ssl: ssl.SSLContext | bool = credentials.client_context() or True
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _send(
        self, endpoint: str, request: Request[T], deadline: float, token: str, connect_s: float | None = None
    ) -> T:
        limits = aiohttp.ClientTimeout(total=max(deadline - time.monotonic(), 0.001), sock_connect=connect_s)
        try:
            async with await self._post(endpoint, request, limits, token) as response:
                answer = _answer(endpoint, request.path, response, await response.read())
            return request.parse(answer)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise _broken(endpoint, request.path, error) from error
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StoreUnavailable(line(endpoint, request.path, f"not an answer of etcd: {error!r}")) from error

    async def _open(self, endpoint: str, request: Request[T], deadline: float, token: str) -> Lines:
        try:
            opening = self._post(endpoint, request, aiohttp.ClientTimeout(total=None), token)
            response = await within(opening, deadline - time.monotonic())
            if response.status == 200:
                return Lines(endpoint, response)
            async with response:
                raw = await within(response.read(), deadline - time.monotonic())
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise _broken(endpoint, request.path, error) from error
        _answer(endpoint, request.path, response, raw)
        raise StoreUnavailable(line(endpoint, request.path, f"HTTP {response.status}"))

    async def _post(
        self, endpoint: str, request: Request[T], limits: aiohttp.ClientTimeout, token: str
    ) -> aiohttp.ClientResponse:
        if self._closed:
            raise StoreUnavailable(line(endpoint, request.path, "this client is closed"), unsent=True)
        if self._session is None:  # made here, since a session belongs to a running loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,  # a proxy of the environment must never stand between a node and its store
            )
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = token
        url, data = f"{endpoint}/v3/{request.path}", json.dumps(request.body)
        return await self._session.post(url, data=data, headers=headers, timeout=limits, allow_redirects=False)


class Lines:
    """One answer of `/v3/watch`: a line of JSON for each message, without end."""

    def __init__(self, endpoint: str, response: aiohttp.ClientResponse) -> None:
        self._endpoint = endpoint
        self._response = response
        self._buffer = bytearray()

    async def next(self) -> Json:
        text = await self._line()
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        result = body.get("result") if isinstance(body, dict) else None
        if not isinstance(result, dict):
            _, words = wire.failure(body) if isinstance(body, dict) else (0, "")
            raise self._ended(words or f"not a message of etcd: {text[:80]!r}")
        return result

    def waiting(self) -> bool:
        return b"\n" in self._buffer

    async def close(self) -> None:
        self._response.close()

    async def _line(self) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            try:
                chunk = await self._response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise self._ended(str(error) or type(error).__name__) from error
            if not chunk:
                raise self._ended("the connection was closed")
            self._buffer += chunk
        found = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return found

    def _ended(self, text: str) -> StoreUnavailable:
        return StoreUnavailable(line(self._endpoint, "watch", text))


def _answer(endpoint: str, path: str, response: aiohttp.ClientResponse, raw: bytes) -> Json:
    """The body of a good answer. Only what certainly comes from etcd itself counts as a refusal."""
    status = response.status
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if isinstance(body, dict):
        if status == 200 and "error" not in body:
            answer = body.get("result", body)
            # Without etcd's header an absent field must not be taken for zero. One exception: etcd 3.4 says {} to a
            # question about alarms when there are none.
            if isinstance(answer, dict) and ("header" in answer or path == wire.ALARMS):
                return answer
        code, text = wire.failure(body)
        if text:
            # grpc-gateway sends refusals as 4xx, and as 200 where the call is a stream.
            if corrupt(code, text) or (code in REFUSALS and status < 500):
                raise refusal(endpoint, path, code, text)
            raise StoreUnavailable(line(endpoint, path, f"HTTP {status}: {text}"), code=code)
    kind = response.headers.get("Content-Type", "no content type").partition(";")[0]
    start = " ".join(raw[:200].decode("utf-8", "replace").split())
    raise StoreUnavailable(line(endpoint, path, f"HTTP {status}, not an answer of etcd ({kind}): {short(start, 80)}"))


def _broken(endpoint: str, path: str, error: Exception) -> StoreUnavailable:
    unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    text = "no answer in time" if isinstance(error, asyncio.TimeoutError) else str(error)
    return StoreUnavailable(line(endpoint, path, text or type(error).__name__), unsent=unsent)
