"""etcd as a `Store`, over whatever carries the words: the gateway's JSON says what is asked and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from yrnode.store import wire
from yrnode.store.caller import Caller, Messages, within
from yrnode.store.errors import LeaseGone, RevisionGone, StoreUnavailable
from yrnode.store.interface import (
    Alarm,
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
from yrnode.store.watch import Watch


class EtcdStore:
    """A `Store`. Use it on one event loop.

    watch_idle_s: after so long without an event a watch asks whether it has missed something; a frozen
    connection is noticed within watch_idle_s and the caller's timeout together.
    """

    def __init__(self, caller: Caller, *, watch_idle_s: float) -> None:
        self._caller = caller
        self._watch_idle_s = watch_idle_s
        self._watches: set[Watch] = set()

    async def get(self, key: str, *, keys_only: bool = False) -> KeyValue | None:
        return await self._caller.call(wire.get(key, keys_only=keys_only), idempotent=True)

    async def list(self, prefix: str, *, revision: int = 0) -> Listing:
        return await self._caller.call(wire.listing(prefix, revision), idempotent=True)

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        return await self._caller.call(wire.put(Put(key, value, lease)))

    async def delete(self, key: str) -> bool:
        return await self._caller.call(wire.delete(Delete(key))) > 0

    async def delete_prefix(self, prefix: str) -> int:
        return await self._caller.call(wire.delete(Delete(prefix, prefix=True)))

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Op] = (), otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        return await self._caller.call(wire.txn(compares, then, otherwise))

    async def lease_grant(self, ttl_s: int) -> tuple[int, float]:
        # Asked twice, it may leave a lease without keys behind, which runs out by itself.
        return await self._caller.call(wire.grant(ttl_s), idempotent=True)

    async def lease_keepalive(self, lease: int) -> float:
        return await self._caller.call(wire.keepalive(lease), idempotent=True)

    async def lease_revoke(self, lease: int) -> None:
        try:
            await self._caller.call(wire.revoke(lease), idempotent=True)
        except LeaseGone:
            return

    async def status(self) -> Status:
        half_s = self._caller.timeout_s / 2
        status = await self._caller.call(wire.status(), idempotent=True, timeout_s=half_s)
        try:
            alarms = await self._alarms(half_s)
        except StoreUnavailable:
            return status
        return replace(status, alarms=alarms)

    async def alarms(self) -> tuple[Alarm, ...]:
        return await self._alarms(self._caller.timeout_s)

    async def _alarms(self, timeout_s: float) -> tuple[Alarm, ...]:
        return await self._caller.call(wire.alarms(), idempotent=True, timeout_s=timeout_s)

    def watch(self, prefix: str, since: Listing | None = None) -> Watch:
        watch = Watch(self, prefix, since, idle_s=self._watch_idle_s, on_close=self._watches.discard)
        self._watches.add(watch)
        return watch

    async def stream(self, prefix: str, revision: int) -> EtcdStream:
        request = wire.watch(prefix, revision)
        endpoint, messages = await self._caller.open(request)
        stream = EtcdStream(self._caller, endpoint, messages, prefix, request)
        confirmed = False
        try:
            await within(stream.created(), self._caller.timeout_s)
            confirmed = True
            return stream
        except asyncio.TimeoutError:
            raise StoreUnavailable(f"etcd {endpoint} watch: no answer in time") from None
        finally:
            if not confirmed:
                self._caller.avoid(endpoint)
                await stream.close()

    async def close(self) -> None:
        for watch in tuple(self._watches):
            await watch.close()
        await self._caller.close()


class EtcdStream:
    """One watch connection."""

    def __init__(
        self,
        caller: Caller,
        endpoint: str,
        messages: Messages,
        prefix: str,
        request: wire.Request[tuple[Event, ...]],
    ) -> None:
        self._caller = caller
        self._endpoint = endpoint
        self._messages = messages
        self._prefix = prefix
        self._request = request

    async def created(self) -> None:
        """Wait for the store's word that the watch exists; no event comes before it."""
        if not (await self._message()).get("created"):
            raise self._broken("does not begin with 'created'")

    async def next(self) -> tuple[Event, ...]:
        events: list[Event] = []
        # where hundreds of nodes speak at once, what has come is one step for whoever listens
        while not events or self._messages.waiting():
            message = await self._message()
            try:
                events += self._request.parse(message)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise self._broken(f"not a message of etcd: {error!r}") from error
        return tuple(events)

    async def probe(self) -> Fingerprint:
        return await self._caller.call_at(self._endpoint, wire.fingerprint(self._prefix))

    async def close(self) -> None:
        await self._messages.close()

    async def _message(self) -> wire.Json:
        result = await self._messages.next()
        if "compact_revision" in result:
            raise RevisionGone(f"etcd {self._endpoint} watch: compacted at {result['compact_revision']}")
        if result.get("canceled"):
            raise self._broken(f"cancelled: {result.get('cancel_reason', 'no reason given')}")
        return result

    def _broken(self, text: str) -> StoreUnavailable:
        return StoreUnavailable(f"etcd {self._endpoint} watch: {text}")
