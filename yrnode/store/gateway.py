"""The store over etcd's JSON gateway, which every etcd since 3.4 serves on its client port."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from dataclasses import replace

import aiohttp

from yrnode.store import wire
from yrnode.store.errors import LeaseGone, RevisionGone, StoreUnavailable
from yrnode.store.interface import (
    Compare,
    Delete,
    Event,
    Fingerprint,
    KeyValue,
    Listing,
    Op,
    Put,
    Status,
    TxnResult,
)
from yrnode.store.transport import Transport, within
from yrnode.store.watch import Watch


class EtcdGateway:
    """A `Store`. Use it on one event loop.

    endpoints: URLs of the members' client ports. timeout_s bounds every call, over all endpoints together.
    watch_idle_s: after so long without an event a watch asks whether it has missed something; a frozen
    connection is noticed within watch_idle_s + timeout_s.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_s: float = 2.0,
        watch_idle_s: float = 2.0,
        ssl_context: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        self._http = Transport(endpoints, timeout_s=timeout_s, ssl_context=ssl_context, user=user, password=password)
        self._watch_idle_s = watch_idle_s
        self._watches: set[Watch] = set()

    async def get(self, key: str) -> KeyValue | None:
        return await self._http.call(wire.get(key), idempotent=True)

    async def list(self, prefix: str, *, revision: int = 0) -> Listing:
        return await self._http.call(wire.listing(prefix, revision), idempotent=True)

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        return await self._http.call(wire.put(Put(key, value, lease)))

    async def delete(self, key: str) -> bool:
        return await self._http.call(wire.delete(Delete(key))) > 0

    async def delete_prefix(self, prefix: str) -> int:
        return await self._http.call(wire.delete(Delete(prefix, prefix=True)))

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Op] = (), otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        return await self._http.call(wire.txn(compares, then, otherwise))

    async def lease_grant(self, ttl_s: int) -> tuple[int, float]:
        # Asked twice, it may leave a lease without keys behind, which runs out by itself.
        return await self._http.call(wire.grant(ttl_s), idempotent=True)

    async def lease_keepalive(self, lease: int) -> float:
        return await self._http.call(wire.keepalive(lease), idempotent=True)

    async def lease_revoke(self, lease: int) -> None:
        try:
            await self._http.call(wire.revoke(lease), idempotent=True)
        except LeaseGone:
            return

    async def status(self) -> Status:
        half_s = self._http.timeout_s / 2
        status = await self._http.call(wire.status(), idempotent=True, timeout_s=half_s)
        try:
            alarms = await self._http.call(wire.alarms(), idempotent=True, timeout_s=half_s)
        except StoreUnavailable:
            return status
        return replace(status, alarms=alarms)

    def watch(self, prefix: str, since: Listing | None = None) -> Watch:
        watch = Watch(self, prefix, since, idle_s=self._watch_idle_s, on_close=self._watches.discard)
        self._watches.add(watch)
        return watch

    async def stream(self, prefix: str, revision: int) -> GatewayStream:
        request = wire.watch(prefix, revision)
        endpoint, response = await self._http.stream(request)
        stream = GatewayStream(self._http, endpoint, response, prefix, request)
        confirmed = False
        try:
            await within(stream.created(), self._http.timeout_s)
            confirmed = True
            return stream
        except asyncio.TimeoutError:
            raise StoreUnavailable(f"etcd {endpoint} watch: no answer in time") from None
        finally:
            if not confirmed:
                self._http.avoid(endpoint)
                await stream.close()

    async def close(self) -> None:
        for watch in tuple(self._watches):
            await watch.close()
        await self._http.close()


class GatewayStream:
    """One answer of `/v3/watch`: a line of JSON for each message, without end."""

    def __init__(
        self,
        http: Transport,
        endpoint: str,
        response: aiohttp.ClientResponse,
        prefix: str,
        request: wire.Request[tuple[Event, ...]],
    ) -> None:
        self._http = http
        self._endpoint = endpoint
        self._response = response
        self._prefix = prefix
        self._request = request
        self._buffer = bytearray()

    async def created(self) -> None:
        """Wait for the store's word that the watch exists; no event comes before it."""
        if not (await self._message()).get("created"):
            raise self._broken("does not begin with 'created'")

    async def next(self) -> tuple[Event, ...]:
        while True:
            message = await self._message()
            try:
                events = self._request.parse(message)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise self._broken(f"not a message of etcd: {error!r}") from error
            if events:
                return events

    async def probe(self) -> Fingerprint:
        return await self._http.call_at(self._endpoint, wire.fingerprint(self._prefix))

    async def close(self) -> None:
        self._response.close()

    async def _message(self) -> wire.Json:
        line = await self._line()
        try:
            body = json.loads(line)
        except ValueError:
            body = None
        result = body.get("result") if isinstance(body, dict) else None
        if not isinstance(result, dict):
            _, text = wire.failure(body) if isinstance(body, dict) else (0, "")
            raise self._broken(text or f"not a message of etcd: {line[:80]!r}")
        if "compact_revision" in result:
            raise RevisionGone(f"etcd {self._endpoint} watch: compacted at {result['compact_revision']}")
        if result.get("canceled"):
            raise self._broken(f"cancelled: {result.get('cancel_reason', 'no reason given')}")
        return result

    async def _line(self) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            try:
                chunk = await self._response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise self._broken(str(error) or type(error).__name__) from error
            if not chunk:
                raise self._broken("the connection was closed")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _broken(self, text: str) -> StoreUnavailable:
        return StoreUnavailable(f"etcd {self._endpoint} watch: {text}")
