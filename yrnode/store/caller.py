"""Asking one etcd cluster, whatever carries the words: endpoints in turn, in time, logged in, refusals told apart."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from yrnode.store import wire
from yrnode.store.credentials import NONE, Credentials
from yrnode.store.errors import LeaseGone, RevisionGone, StoreError, StoreRefused, StoreUnavailable
from yrnode.store.wire import Json, Request

T = TypeVar("T")

# gRPC codes that etcd gives to what will fail again: invalid argument, not found, permission denied, resource
# exhausted (NOSPACE, too large), out of range, unauthenticated.
REFUSALS = frozenset((3, 5, 7, 8, 11, 16))
_NOT_FOUND, _FAILED_PRECONDITION, _OUT_OF_RANGE, _DATA_LOSS, _UNAUTHENTICATED = 5, 9, 11, 15, 16
_log = logging.getLogger(__name__)


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


class Messages(Protocol):
    """The answers on one open watch, as the gateway writes them. It ends by raising StoreUnavailable."""

    async def next(self) -> Json: ...

    def waiting(self) -> bool:
        """Whether another one is here already, so that `next` would not wait."""
        ...

    async def close(self) -> None: ...


class Caller(ABC):
    """Calls to the endpoints of one etcd cluster. All errors are StoreErrors of one line.

    A backend adds how one request goes to one endpoint.
    """

    def __init__(self, endpoints: Sequence[str], *, timeout_s: float = 2.0, credentials: Credentials = NONE) -> None:
        if not endpoints:
            raise ValueError("at least one etcd endpoint is needed")
        for endpoint in endpoints:
            if not endpoint.startswith(("http://", "https://")):
                raise ValueError(f"etcd endpoint {endpoint!r} must begin with http:// or https://")
        self.timeout_s = timeout_s
        self._endpoints = tuple(endpoint.rstrip("/") for endpoint in endpoints)
        self._preferred = 0
        self._credentials = credentials
        self._token = ""
        self._open_door = False
        self._login = asyncio.Lock()
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

    async def open(self, request: Request[T]) -> tuple[str, Messages]:
        """Ask the preferred endpoint for a watch and leave its answer open."""
        endpoint = self._endpoints[self._preferred]
        deadline = time.monotonic() + self.timeout_s
        try:
            token = await self._valid_token(endpoint, deadline)
            return endpoint, await self._open(endpoint, request, deadline, token)
        except StoreUnavailable:
            self.avoid(endpoint)
            raise

    def avoid(self, endpoint: str) -> None:
        """Ask another endpoint first from now on, where there is one."""
        if endpoint == self._endpoints[self._preferred]:
            self._preferred = (self._preferred + 1) % len(self._endpoints)

    @abstractmethod
    async def close(self) -> None:
        """Drop all connections; calls fail from now on."""

    @abstractmethod
    async def _send(
        self, endpoint: str, request: Request[T], deadline: float, token: str, connect_s: float | None = None
    ) -> T:
        """One request to one endpoint. `connect_s`: how long a connection may take, where none is open."""

    @abstractmethod
    async def _open(self, endpoint: str, request: Request[T], deadline: float, token: str) -> Messages:
        """One watch at one endpoint; only its beginning is bounded in time."""

    async def _call(self, endpoint: str, request: Request[T], deadline: float, connect_s: float | None = None) -> T:
        """Log in where needed, and once again when the token turns out to be old: then nothing was done yet."""
        token = await self._valid_token(endpoint, deadline)
        try:
            return await self._send(endpoint, request, deadline, token, connect_s)
        except StoreRefused as error:
            if not self._credentials.user or not _wants_log_in(error):
                raise
        if self._token == token:
            self._token = ""
        token = await self._valid_token(endpoint, deadline)
        return await self._send(endpoint, request, deadline, token, connect_s)

    async def _valid_token(self, endpoint: str, deadline: float) -> str:
        if self._credentials.user and not self._token:
            try:
                await within(self._log_in(endpoint, deadline), deadline - time.monotonic())
            except (StoreUnavailable, asyncio.TimeoutError) as error:
                # Nothing of the caller's request has left yet, whatever happened to the log-in.
                text = str(error) or line(endpoint, "auth/authenticate", "no answer in time")
                raise StoreUnavailable(text, unsent=True) from error
        return self._token

    async def _log_in(self, endpoint: str, deadline: float) -> None:
        async with self._login:
            if self._token:
                return
            request = wire.log_in(self._credentials.user, self._credentials.password)
            try:
                self._token = await self._send(endpoint, request, deadline, "")
            except StoreUnavailable as error:
                if error.code != _FAILED_PRECONDITION or "authentication is not enabled" not in str(error):
                    raise
                # an operator enables it when the users are there, and that needs an etcd which runs
                if not self._open_door:
                    self._open_door = True
                    _log.warning("etcd %s asks nobody who he is: its auth is not enabled", endpoint)


def refuses(code: int, text: str) -> bool:
    """Whether a gRPC code of etcd means that asking again will not help."""
    return code in REFUSALS or corrupt(code, text)


def corrupt(code: int, text: str) -> bool:
    """The one refusal that etcd does not mark as one."""
    return code == _DATA_LOSS and "corrupt cluster" in text


def refusal(endpoint: str, path: str, code: int, text: str) -> StoreError:
    """The error for a code that `refuses`, and its text."""
    words = line(endpoint, path, text)
    if "too many requests" in text:
        return StoreUnavailable(words, code=code)
    if code == _OUT_OF_RANGE and "revision" in text:
        return RevisionGone(words, code=code)
    if code == _NOT_FOUND and "lease" in text:
        return LeaseGone(words, code=code)
    return StoreRefused(words, code=code)


def line(endpoint: str, path: str, text: str) -> str:
    """An error's one line."""
    return f"etcd {endpoint} {path}: {' '.join(text.split())}"


def _wants_log_in(error: StoreRefused) -> bool:
    """The token is old, or auth has been enabled since it was not needed."""
    told = ("revision of auth store is old", "user name is empty")
    return error.code == _UNAUTHENTICATED or any(words in str(error) for words in told)
