"""The store over the `etcd3` package: gRPC, for an etcd whose gateway is switched off.

The package blocks; one client is one endpoint, and its watch ends with the first outage. So only its stubs are used,
each call in a thread, and all else that a store needs is the same as over the gateway, whose JSON is that of the
protobuf messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from yrnode.model.errors import UsageError
from yrnode.store.caller import Caller, line, refusal, refuses, within
from yrnode.store.credentials import NONE, Credentials
from yrnode.store.errors import StoreUnavailable
from yrnode.store.etcd import EtcdStore
from yrnode.store.wire import Json, Request

T = TypeVar("T")

THREADS = 16
"""Calls at a time; more wait, and their time runs."""
SWITCHES = {
    # the package's messages are older than what a current protobuf takes otherwise
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
    "GRPC_ENABLE_FORK_SUPPORT": "false",
    "GRPC_VERBOSITY": "NONE",
}
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment must never stand between a node and its store
    ("grpc.use_local_subchannel_pool", 1),  # or the backoff of one client would hold up another
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 2000),  # how long one attempt to connect may take
    # for a connection whose other end is gone without a word; etcd takes a ping each 5 s
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 3000),
)
# path of the gateway: stub, method, message
_METHODS = {
    "kv/range": ("KV", "Range", "RangeRequest"),
    "kv/put": ("KV", "Put", "PutRequest"),
    "kv/deleterange": ("KV", "DeleteRange", "DeleteRangeRequest"),
    "kv/txn": ("KV", "Txn", "TxnRequest"),
    "lease/grant": ("Lease", "LeaseGrant", "LeaseGrantRequest"),
    "lease/revoke": ("Lease", "LeaseRevoke", "LeaseRevokeRequest"),
    "lease/keepalive": ("Lease", "LeaseKeepAlive", "LeaseKeepAliveRequest"),
    "maintenance/status": ("Maintenance", "Status", "StatusRequest"),
    "maintenance/alarm": ("Maintenance", "Alarm", "AlarmRequest"),
    "auth/authenticate": ("Auth", "Authenticate", "AuthenticateRequest"),
    "watch": ("Watch", "Watch", "WatchRequest"),
}
_STREAMS = frozenset(("lease/keepalive", "watch"))
# fields of etcd's status that are younger than the package
_YOUNGER = {9: "dbSizeInUse", 12: "dbSizeQuota"}
_ERRORS = 8
_DEADLINE_EXCEEDED = 4


class Package(NamedTuple):
    """What is used of etcd3 and of what it stands on."""

    client: Callable[..., Any]
    rpc: Any
    grpc: Any
    json: Any
    unknown_fields: Callable[[Any], Any]


def package() -> Package:
    """The package, imported in the only way that works; no child of this process sees how. UsageError without it."""
    before = {name: os.environ.get(name) for name in SWITCHES}
    os.environ.update(SWITCHES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import etcd3
            import grpc
            from etcd3 import etcdrpc
            from google.protobuf import json_format
            from google.protobuf.unknown_fields import UnknownFieldSet
    except (ImportError, TypeError) as e:
        words = str(e).partition("\n")[0]
        raise UsageError(
            f"etcd.client: etcd3 cannot be imported here ({words}); install yrnode[etcd3], or write gateway"
        ) from None
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return Package(etcd3.client, etcdrpc, grpc, json_format, UnknownFieldSet)


class Etcd3Store(EtcdStore):
    """endpoints: URLs of the members' client ports. timeout_s bounds every call, over all endpoints together."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_s: float = 2.0,
        watch_idle_s: float = 2.0,
        credentials: Credentials = NONE,
    ) -> None:
        super().__init__(Rpc(endpoints, timeout_s=timeout_s, credentials=credentials), watch_idle_s=watch_idle_s)


class Rpc(Caller):
    """One client of the package for each endpoint."""

    def __init__(self, endpoints: Sequence[str], *, timeout_s: float = 2.0, credentials: Credentials = NONE) -> None:
        super().__init__(endpoints, timeout_s=timeout_s, credentials=credentials)
        self._package = package()
        self._clients: dict[str, Any] = {}
        self._making = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS, "etcd3")

    async def close(self) -> None:
        with self._making:
            self._closed = True
        for client in self._clients.values():
            client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.sleep(0)

    async def _send(
        self, endpoint: str, request: Request[T], deadline: float, token: str, connect_s: float | None = None
    ) -> T:
        if self._closed:
            raise self._gone(endpoint, request.path)
        asking = asyncio.get_running_loop().run_in_executor(self._pool, self._ask, endpoint, request, deadline, token)
        try:
            return await within(asking, deadline - time.monotonic())
        except asyncio.TimeoutError as error:
            raise StoreUnavailable(line(endpoint, request.path, "no answer in time")) from error

    async def _open(self, endpoint: str, request: Request[T], deadline: float, token: str) -> Stream:
        try:
            words: SimpleQueue[Any] = SimpleQueue()
            words.put(self._message(request))
            call = self._method(endpoint, request.path)(iter(words.get, None), metadata=_metadata(token))
        except ValueError as error:
            raise self._gone(endpoint, request.path) from error
        return Stream(self, endpoint, call, words)

    def _ask(self, endpoint: str, request: Request[T], deadline: float, token: str) -> T:
        """In a thread."""
        timeout = max(deadline - time.monotonic(), 0.001)
        try:
            message, method = self._message(request), self._method(endpoint, request.path)
            if request.path in _STREAMS:
                call = method(iter((message,)), timeout=timeout, metadata=_metadata(token))
                answer = next(call, None)
                call.cancel()
            else:
                answer = method(message, timeout=timeout, metadata=_metadata(token))
        except self._package.grpc.RpcError as error:
            raise self.failure(endpoint, request.path, error) from error
        except ValueError as error:  # of a channel that was closed meanwhile
            raise self._gone(endpoint, request.path) from error
        if answer is None:
            raise StoreUnavailable(line(endpoint, request.path, "no answer"))
        try:
            return request.parse(self.plain(answer))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StoreUnavailable(line(endpoint, request.path, f"not an answer of etcd: {error!r}")) from error

    def _message(self, request: Request[T]) -> Any:
        kind = getattr(self._package.rpc, _METHODS[request.path][2])
        return self._package.json.ParseDict(request.body, kind())

    def _method(self, endpoint: str, path: str) -> Callable[..., Any]:
        stub, method, _ = _METHODS[path]
        return getattr(getattr(self._package.rpc, f"{stub}Stub")(self._client(endpoint).channel), method)  # type: ignore[no-any-return]

    def _client(self, endpoint: str) -> Any:
        with self._making:
            if self._closed:
                raise ValueError("closed")
            if endpoint not in self._clients:
                parts, own = urlsplit(endpoint), self._credentials
                files = (own.ca, own.key, own.cert) if parts.scheme == "https" else (None, None, None)
                ca, key, cert = (None if file is None else str(file) for file in files)
                host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
                try:
                    self._clients[endpoint] = self._package.client(
                        host, parts.port, ca_cert=ca, cert_key=key, cert_cert=cert, grpc_options=_OPTIONS
                    )
                except OSError as error:
                    text = f"{error.filename}: {error.strerror}"
                    raise StoreUnavailable(line(endpoint, "connect", text), unsent=True) from error
            return self._clients[endpoint]

    def plain(self, answer: Any) -> Json:
        """A message as the gateway would write it."""
        found: dict[str, Any] = self._package.json.MessageToDict(answer, preserving_proto_field_name=True)
        if isinstance(answer, self._package.rpc.StatusResponse):
            for unknown in self._package.unknown_fields(answer):
                if unknown.field_number in _YOUNGER:
                    found[_YOUNGER[unknown.field_number]] = unknown.data
                elif unknown.field_number == _ERRORS:
                    found.setdefault("errors", []).append(unknown.data.decode("utf-8", "replace"))
        return found

    def failure(self, endpoint: str, path: str, error: Any) -> Exception:
        """The StoreError for what gRPC raised."""
        if self._closed:
            return self._gone(endpoint, path)
        code, text = int(error.code().value[0]), error.details() or error.code().name
        if refuses(code, text):
            return refusal(endpoint, path, code, text)
        if code == _DEADLINE_EXCEEDED:
            text = "no answer in time"
        unsent = text.startswith("failed to connect to all addresses")
        return StoreUnavailable(line(endpoint, path, text), code=code, unsent=unsent)

    def _gone(self, endpoint: str, path: str) -> StoreUnavailable:
        return StoreUnavailable(line(endpoint, path, "this client is closed"), unsent=True)


class Stream:
    """One watch. A thread of its own waits for each message that is asked for, and ends with the call."""

    def __init__(self, rpc: Rpc, endpoint: str, call: Iterator[Any], words: SimpleQueue[Any]) -> None:
        self._rpc, self._endpoint = rpc, endpoint
        self._call: Any = call
        self._words = words
        self._wanted: SimpleQueue[asyncio.Future[Json] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="etcd3-watch", daemon=True).start()

    async def next(self) -> Json:
        wanted: asyncio.Future[Json] = self._loop.create_future()
        self._wanted.put(wanted)
        return await wanted

    def waiting(self) -> bool:
        return False

    async def close(self) -> None:
        for end in (self._wanted, self._words):
            end.put(None)
        self._call.cancel()
        await asyncio.sleep(0)

    def _read(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            found: Json | Exception
            try:
                found = self._rpc.plain(next(self._call))
            except StopIteration:
                found = StoreUnavailable(line(self._endpoint, "watch", "the connection was closed"))
            except Exception as error:
                found = self._failure(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(_settle, wanted, found)

    def _failure(self, error: Exception) -> Exception:
        if hasattr(error, "code"):
            found = self._rpc.failure(self._endpoint, "watch", error)
            # the watch ends, and the call that follows tells whether it is refused
            return found if isinstance(found, StoreUnavailable) else StoreUnavailable(str(found))
        return StoreUnavailable(line(self._endpoint, "watch", repr(error)))


def _settle(wanted: asyncio.Future[Json], found: Json | Exception) -> None:
    if wanted.done():
        return
    if isinstance(found, Exception):
        wanted.set_exception(found)
    else:
        wanted.set_result(found)


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("token", token),) if token else ()
