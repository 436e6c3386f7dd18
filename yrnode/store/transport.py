"""HTTP to etcd's gateway: endpoints in turn, timeouts, log-in, and telling refusals from outages."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import aiohttp

from yrnode.store import wire
from yrnode.store.errors import LeaseGone, RevisionGone, StoreError, StoreRefused, StoreUnavailable
from yrnode.store.wire import Json, Request

T = TypeVar("T")

# gRPC codes that etcd gives to what will fail again: invalid argument, not found, permission denied, resource
# exhausted (NOSPACE, too large), out of range, unauthenticated.
_REFUSALS = frozenset((3, 5, 7, 8, 11, 16))
_NOT_FOUND, _OUT_OF_RANGE, _DATA_LOSS, _UNAUTHENTICATED = 5, 11, 15, 16


async def within(work: Awaitable[T], timeout_s: float) -> T:
    """`work`'s result, or asyncio.TimeoutError. Unlike wait_for before 3.12 it never swallows a cancellation."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(timeout_s, 0))
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()


class Transport:
    """One HTTP session with the endpoints of one etcd cluster. All errors are StoreErrors of one line."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_s: float,
        ssl_context: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        if not endpoints:
            raise ValueError("at least one etcd endpoint is needed")
        for endpoint in endpoints:
            if not endpoint.startswith(("http://", "https://")):
                raise ValueError(f"etcd endpoint {endpoint!r} must begin with http:// or https://")
        self.timeout_s = timeout_s
        self._endpoints = tuple(endpoint.rstrip("/") for endpoint in endpoints)
        self._preferred = 0
        self._ssl: ssl.SSLContext | bool = True if ssl_context is None else ssl_context
        self._user, self._password = user, password
        self._token = ""
        self._login = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def call(self, request: Request[T], *, idempotent: bool = False, timeout_s: float | None = None) -> T:
        """Ask, within `timeout_s` over all endpoints.

        The next endpoint is tried after a failure only if the call is idempotent or was certainly not sent.
        """
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        for untried in range(len(self._endpoints), 0, -1):
            endpoint = self._endpoints[self._preferred]
            share = (deadline - time.monotonic()) / untried
            until = time.monotonic() + share if idempotent else deadline
            try:
                return await self._call(endpoint, request, until, connect_s=share)
            except StoreUnavailable as error:
                self.avoid(endpoint)
                may_repeat = idempotent or error.unsent
                if not may_repeat or untried == 1 or time.monotonic() >= deadline:
                    raise
        raise AssertionError("unreachable: the last endpoint's error is raised")

    async def call_at(self, endpoint: str, request: Request[T]) -> T:
        """Ask this endpoint and no other."""
        return await self._call(endpoint, request, time.monotonic() + self.timeout_s)

    async def stream(self, request: Request[T]) -> tuple[str, aiohttp.ClientResponse]:
        """Ask the preferred endpoint and leave its answer open; only the head of it is bounded in time."""
        endpoint = self._endpoints[self._preferred]
        deadline = time.monotonic() + self.timeout_s
        try:
            token = await self._valid_token(endpoint, deadline)
            opening = self._open(endpoint, request, aiohttp.ClientTimeout(total=None), token)
            response = await within(opening, deadline - time.monotonic())
            if response.status == 200:
                return endpoint, response
            async with response:
                raw = await within(response.read(), deadline - time.monotonic())
            _answer(endpoint, request.path, response, raw)
            raise StoreUnavailable(_line(endpoint, request.path, f"HTTP {response.status}"))
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            self.avoid(endpoint)
            raise _broken(endpoint, request.path, error) from error
        except StoreUnavailable:
            self.avoid(endpoint)
            raise

    def avoid(self, endpoint: str) -> None:
        """Ask another endpoint first from now on, where there is one."""
        if endpoint == self._endpoints[self._preferred]:
            self._preferred = (self._preferred + 1) % len(self._endpoints)

    async def close(self) -> None:
        """Drop all connections; calls fail from now on."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _call(self, endpoint: str, request: Request[T], deadline: float, connect_s: float | None = None) -> T:
        """Log in where needed, and once again when the token turns out to be old: then nothing was done yet."""
        token = await self._valid_token(endpoint, deadline)
        try:
            return await self._post(endpoint, request, deadline, token, connect_s)
        except StoreRefused as error:
            if not token or not _token_is_old(error):
                raise
        if self._token == token:
            self._token = ""
        token = await self._valid_token(endpoint, deadline)
        return await self._post(endpoint, request, deadline, token, connect_s)

    async def _post(
        self, endpoint: str, request: Request[T], deadline: float, token: str, connect_s: float | None = None
    ) -> T:
        limits = aiohttp.ClientTimeout(total=max(deadline - time.monotonic(), 0.001), sock_connect=connect_s)
        try:
            async with await self._open(endpoint, request, limits, token) as response:
                answer = _answer(endpoint, request.path, response, await response.read())
            return request.parse(answer)
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            raise _broken(endpoint, request.path, error) from error
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StoreUnavailable(_line(endpoint, request.path, f"not an answer of etcd: {error!r}")) from error

    async def _open(
        self, endpoint: str, request: Request[T], limits: aiohttp.ClientTimeout, token: str
    ) -> aiohttp.ClientResponse:
        if self._closed:
            raise StoreUnavailable(_line(endpoint, request.path, "this client is closed"), unsent=True)
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

    async def _valid_token(self, endpoint: str, deadline: float) -> str:
        if self._user and not self._token:
            try:
                await within(self._log_in(endpoint, deadline), deadline - time.monotonic())
            except (StoreUnavailable, asyncio.TimeoutError) as error:
                # Nothing of the caller's request has left yet, whatever happened to the log-in.
                text = str(error) or _line(endpoint, "auth/authenticate", "no answer in time")
                raise StoreUnavailable(text, unsent=True) from error
        return self._token

    async def _log_in(self, endpoint: str, deadline: float) -> None:
        async with self._login:
            if not self._token:
                request = wire.log_in(self._user, self._password)
                self._token = await self._post(endpoint, request, deadline, "")


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
            corrupt = code == _DATA_LOSS and "corrupt cluster" in text  # the one refusal that etcd sends as 500
            if corrupt or (code in _REFUSALS and status < 500):
                raise _refusal(endpoint, path, code, text)
            raise StoreUnavailable(_line(endpoint, path, f"HTTP {status}: {text}"), code=code)
    kind = response.headers.get("Content-Type", "no content type").partition(";")[0]
    start = " ".join(raw[:200].decode("utf-8", "replace").split())[:80]
    raise StoreUnavailable(_line(endpoint, path, f"HTTP {status}, not an answer of etcd ({kind}): {start}"))


def _refusal(endpoint: str, path: str, code: int, text: str) -> StoreError:
    """The error for a gRPC code of `_REFUSALS` and its text."""
    line = _line(endpoint, path, text)
    if "too many requests" in text:
        return StoreUnavailable(line, code=code)
    if code == _OUT_OF_RANGE and "revision" in text:
        return RevisionGone(line, code=code)
    if code == _NOT_FOUND and "lease" in text:
        return LeaseGone(line, code=code)
    return StoreRefused(line, code=code)


def _broken(endpoint: str, path: str, error: Exception) -> StoreUnavailable:
    unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    text = "no answer in time" if isinstance(error, asyncio.TimeoutError) else str(error)
    return StoreUnavailable(_line(endpoint, path, text or type(error).__name__), unsent=unsent)


def _token_is_old(error: StoreRefused) -> bool:
    return error.code == _UNAUTHENTICATED or "revision of auth store is old" in str(error)


def _line(endpoint: str, path: str, text: str) -> str:
    return f"etcd {endpoint} {path}: {' '.join(text.split())}"
