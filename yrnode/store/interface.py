"""The store as the other rooms see it: plain values and one interface, whatever client lies behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from yrnode.store.watch import Watch


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as stored. `lease` is 0 where it has none."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys under a prefix at one revision of the store, in key order."""

    prefix: str
    revision: int
    items: tuple[KeyValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """A key was put (`kv`) or deleted (`kv` is None). `revision` of a delete found by re-listing is the list's."""

    key: str
    revision: int
    kv: KeyValue | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """One condition of a transaction. With `prefix` it must hold for every key under `key`."""

    key: str
    target: Literal["VALUE", "MOD", "CREATE", "VERSION"]
    result: Literal["EQUAL", "NOT_EQUAL", "LESS", "GREATER"]
    operand: bytes | int
    prefix: bool = False


def value_is(key: str, value: bytes) -> Compare:
    """The key exists and holds exactly this value."""
    return Compare(key, "VALUE", "EQUAL", value)


def mod_is(key: str, revision: int) -> Compare:
    """The key was last put at this revision; 0 = it does not exist."""
    return Compare(key, "MOD", "EQUAL", revision)


def create_is(key: str, revision: int) -> Compare:
    """The key was created at this revision and has not been deleted since; 0 = it does not exist."""
    return Compare(key, "CREATE", "EQUAL", revision)


def version_is(key: str, version: int) -> Compare:
    """The key has been put this often since its creation; 0 = it does not exist."""
    return Compare(key, "VERSION", "EQUAL", version)


def absent(key: str) -> Compare:
    """The key does not exist."""
    return create_is(key, 0)


def present(key: str) -> Compare:
    """The key exists."""
    return Compare(key, "CREATE", "GREATER", 0)


def prefix_empty(prefix: str) -> Compare:
    """No key exists under the prefix."""
    return Compare(prefix, "CREATE", "EQUAL", 0, prefix=True)


def unchanged(listing: Listing) -> tuple[Compare, ...]:
    """Nothing under the listing's prefix was put or deleted since.

    etcd cannot see a delete in a comparison over a range, so every key is compared too: it costs one comparison
    a key, and etcd takes 128 in a transaction by default.
    """
    if not listing.items:
        return (prefix_empty(listing.prefix),)
    newest = Compare(listing.prefix, "MOD", "LESS", listing.revision + 1, prefix=True)
    return (newest, *(mod_is(kv.key, kv.mod_revision) for kv in listing.items))


@dataclass(frozen=True, slots=True)
class Put:
    """Put a key in a transaction."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key, or all under a prefix, in a transaction."""

    key: str
    prefix: bool = False

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("an empty prefix would delete every key of the store")


@dataclass(frozen=True, slots=True)
class Get:
    """Read a key, or all under a prefix, in a transaction."""

    key: str
    prefix: bool = False


Op = Put | Delete | Get


@dataclass(frozen=True, slots=True)
class TxnResult:
    """`succeeded`: every comparison held. `got`: one entry for each op of the branch taken, empty but for Get."""

    succeeded: bool
    revision: int
    got: tuple[tuple[KeyValue, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm of one member: NOSPACE or CORRUPT. One member's alarm makes the whole cluster refuse writes."""

    member: int
    kind: str


@dataclass(frozen=True, slots=True)
class Status:
    """What the member that answered says of itself, quorum or not. Sizes in bytes."""

    version: str
    member: int
    leader: int  # 0 = it knows none
    revision: int
    raft_term: int
    db_size: int
    db_size_in_use: int
    quota: int | None  # etcd before 3.6 does not tell
    alarms: tuple[Alarm, ...] | None  # None = could not be asked: that takes a quorum
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Two reads of a prefix with equal fingerprints have seen the same keys at the same revisions.

    A put raises `newest` (the highest mod revision), and a delete without a put lowers `count`.
    """

    newest: int
    count: int


class Stream(Protocol):
    """One watch connection. It ends by raising; `Watch` makes a lasting one of it."""

    async def next(self) -> tuple[Event, ...]:
        """The next whole revisions. Raises RevisionGone after a compaction, else StoreError."""
        ...

    async def probe(self) -> Fingerprint:
        """A linearizable read of the watched prefix by the same endpoint, within the store's timeout."""
        ...

    async def close(self) -> None:
        """Give the connection up."""
        ...


class Store(Protocol):
    """A store of keys with revisions, leases, transactions and watches.

    Reads are linearizable. Every call ends within its timeout and raises StoreUnavailable or StoreRefused,
    nothing else. A write whose answer was lost is never repeated.
    """

    async def get(self, key: str, *, keys_only: bool = False) -> KeyValue | None:
        """The key, or None where it does not exist. With `keys_only` its value is left out, which may be large."""
        ...

    async def list(self, prefix: str, *, revision: int = 0) -> Listing:
        """All keys under the prefix, now or at an earlier revision (RevisionGone where it has none of it)."""
        ...

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Put the key; the revision of the put. LeaseGone where the lease is dead."""
        ...

    async def delete(self, key: str) -> bool:
        """Delete the key; whether it existed."""
        ...

    async def delete_prefix(self, prefix: str) -> int:
        """Delete all keys under the prefix, which must not be empty; how many there were."""
        ...

    async def txn(
        self, compares: Sequence[Compare], then: Sequence[Op] = (), otherwise: Sequence[Op] = ()
    ) -> TxnResult:
        """Do `then` if every comparison holds, else `otherwise`, in one step."""
        ...

    async def lease_grant(self, ttl_s: int) -> tuple[int, float]:
        """A new lease: its id, and the seconds that it really got."""
        ...

    async def lease_keepalive(self, lease: int) -> float:
        """Renew; the full seconds granted again, or 0.0 where the lease is gone."""
        ...

    async def lease_revoke(self, lease: int) -> None:
        """End the lease and delete its keys; no error where it is gone already."""
        ...

    async def status(self) -> Status:
        """Version, sizes, leader and alarms."""
        ...

    async def alarms(self) -> tuple[Alarm, ...]:
        """The alarms of all members, which takes a quorum."""
        ...

    def watch(self, prefix: str, since: Listing | None = None) -> Watch:
        """Follow a prefix: what changed after the listing, or, without one, first all that is there."""
        ...

    async def stream(self, prefix: str, revision: int) -> Stream:
        """One watch connection that delivers from this revision on, opened and confirmed by the store."""
        ...

    async def close(self) -> None:
        """End all watches and connections. Leases are left to run out."""
        ...
