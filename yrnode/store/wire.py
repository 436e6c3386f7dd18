"""The JSON of etcd's gateway: int64 as strings, bytes in base64, and whatever is zero or false left out."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from yrnode.store.interface import (
    Alarm,
    Compare,
    Delete,
    Event,
    Fingerprint,
    Get,
    KeyValue,
    Listing,
    Op,
    Put,
    Status,
    TxnResult,
)
from yrnode.store.keys import range_end

Json = Mapping[str, Any]
ALARMS = "maintenance/alarm"
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Request(Generic[T_co]):
    """A path below `/v3/`, its body, and how to read the answer (anything it trips over is not etcd's)."""

    path: str
    body: Json
    parse: Callable[[Json], T_co]


def get(key: str, *, keys_only: bool = False) -> Request[KeyValue | None]:
    body = {**_where(key), "keys_only": True} if keys_only else _where(key)
    return Request("kv/range", body, lambda answer: next(iter(_key_values(answer)), None))


def listing(prefix: str, revision: int) -> Request[Listing]:
    """`revision` 0 = now."""
    body = {**_where(prefix, prefix=True), "revision": str(revision)}
    return Request(
        "kv/range", body, lambda answer: Listing(prefix, revision or _revision(answer), _key_values(answer))
    )


def fingerprint(prefix: str) -> Request[Fingerprint]:
    """The newest key alone and the count of all: small, however much lies under the prefix."""
    newest = {"limit": "1", "sort_order": "DESCEND", "sort_target": "MOD", "keys_only": True}

    def parse(answer: Json) -> Fingerprint:
        revisions = (kv.mod_revision for kv in _key_values(answer))
        return Fingerprint(max(revisions, default=0), int(answer.get("count", 0)))

    return Request("kv/range", {**_where(prefix, prefix=True), **newest}, parse)


def put(op: Put) -> Request[int]:
    return Request("kv/put", _put(op), _revision)


def delete(op: Delete) -> Request[int]:
    return Request("kv/deleterange", _where(op.key, prefix=op.prefix), lambda answer: int(answer.get("deleted", 0)))


def txn(compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op]) -> Request[TxnResult]:
    body = {
        "compare": [_compare(condition) for condition in compares],
        "success": [_op(op) for op in then],
        "failure": [_op(op) for op in otherwise],
    }

    def parse(answer: Json) -> TxnResult:
        got = tuple(_key_values(response.get("response_range", {})) for response in answer.get("responses", ()))
        return TxnResult(bool(answer.get("succeeded")), _revision(answer), got)

    return Request("kv/txn", body, parse)


def grant(ttl_s: int) -> Request[tuple[int, float]]:
    return Request("lease/grant", {"TTL": str(ttl_s)}, lambda answer: (int(answer["ID"]), float(answer["TTL"])))


def keepalive(lease: int) -> Request[float]:
    """0 where the field is absent: the lease is gone."""
    return Request("lease/keepalive", {"ID": str(lease)}, lambda answer: float(answer.get("TTL", 0)))


def revoke(lease: int) -> Request[int]:
    return Request("lease/revoke", {"ID": str(lease)}, _revision)


def status() -> Request[Status]:
    def parse(answer: Json) -> Status:
        return Status(
            version=str(answer["version"]),
            member=int(answer["header"]["member_id"]),
            leader=int(answer.get("leader", 0)),
            revision=_revision(answer),
            raft_term=int(answer.get("raftTerm", 0)),
            db_size=int(answer.get("dbSize", 0)),
            db_size_in_use=int(answer.get("dbSizeInUse", 0)),
            quota=int(answer["dbSizeQuota"]) if "dbSizeQuota" in answer else None,
            alarms=None,
            errors=tuple(str(error) for error in answer.get("errors", ())),
        )

    return Request("maintenance/status", {}, parse)


def alarms() -> Request[tuple[Alarm, ...]]:
    def parse(answer: Json) -> tuple[Alarm, ...]:
        return tuple(Alarm(int(alarm.get("memberID", 0)), str(alarm["alarm"])) for alarm in answer.get("alarms", ()))

    return Request(ALARMS, {"action": "GET"}, parse)


def log_in(user: str, password: str) -> Request[str]:
    return Request("auth/authenticate", {"name": user, "password": password}, lambda answer: str(answer["token"]))


def watch(prefix: str, revision: int) -> Request[tuple[Event, ...]]:
    """`parse` is for each message of the answer; etcd does not split a revision over messages."""
    body = {"create_request": {**_where(prefix, prefix=True), "start_revision": str(revision)}}

    def parse(message: Json) -> tuple[Event, ...]:
        return tuple(_event(event) for event in message.get("events", ()))

    return Request("watch", body, parse)


def failure(body: Json) -> tuple[int, str]:
    """gRPC code (2, unknown, where there is none) and text of an error's body; "" where it is not one of etcd's."""
    error = body.get("error")
    if isinstance(error, Mapping):  # in a stream
        code, text = error.get("grpc_code"), error.get("message")
    else:
        code, text = body.get("code"), body.get("message") or error
    return code if isinstance(code, int) else 2, text if isinstance(text, str) else ""


def _event(event: Json) -> Event:
    kv = _key_value(event["kv"])
    return Event(kv.key, kv.mod_revision, None if event.get("type") == "DELETE" else kv)


def _where(key: str, *, prefix: bool = False) -> dict[str, str]:
    """The part of a request that says which key, or which prefix."""
    # Keys are UTF-8; other bytes, which a stranger may have put, survive the round trip.
    raw = key.encode("utf-8", "surrogateescape")
    if not prefix:
        return {"key": _encoded(raw)}
    return {"key": _encoded(raw or b"\0"), "range_end": _encoded(range_end(raw))}


def _put(op: Put) -> dict[str, str]:
    return {**_where(op.key), "value": _encoded(op.value), "lease": str(op.lease)}


def _op(op: Op) -> dict[str, dict[str, str]]:
    if isinstance(op, Put):
        return {"request_put": _put(op)}
    kind = "request_range" if isinstance(op, Get) else "request_delete_range"
    return {kind: _where(op.key, prefix=op.prefix)}


def _compare(condition: Compare) -> dict[str, str]:
    operand, target = condition.operand, condition.target
    field = {"MOD": "mod_revision", "CREATE": "create_revision"}.get(target, target.lower())
    return {
        **_where(condition.key, prefix=condition.prefix),
        "target": target,
        "result": condition.result,
        field: _encoded(operand) if isinstance(operand, bytes) else str(operand),
    }


def _encoded(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _key_value(kv: Json) -> KeyValue:
    return KeyValue(
        key=b64decode(kv["key"]).decode("utf-8", "surrogateescape"),
        value=b64decode(kv.get("value", "")),
        create_revision=int(kv.get("create_revision", 0)),
        mod_revision=int(kv["mod_revision"]),
        version=int(kv.get("version", 0)),
        lease=int(kv.get("lease", 0)),
    )


def _key_values(answer: Json) -> tuple[KeyValue, ...]:
    return tuple(_key_value(kv) for kv in answer.get("kvs", ()))


def _revision(answer: Json) -> int:
    return int(answer["header"]["revision"])
