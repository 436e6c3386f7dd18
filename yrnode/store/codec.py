"""The shared keys' values as JSON, both ways. What cannot be read is None: unknown, never acted on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from yrnode.model.board import Fence, Intent, Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Member, Phase, Stage

_BAD = (KeyError, TypeError, ValueError, AttributeError)


def dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def record_dict(record: GroupRecord) -> dict[str, Any]:
    return {
        **vars(record),
        "stage": record.stage.value,
        "cause": {**vars(record.cause), "reason": record.cause.reason.value},
        "members": list(record.members),
    }


def record_of(data: Mapping[str, Any]) -> GroupRecord:
    """KeyError, TypeError or ValueError for what is no record."""
    cause, port = data["cause"], data.get("rpc_port")
    return GroupRecord(
        n=int(data["n"]),
        stage=Stage(data["stage"]),
        cause=Cause(Reason(cause["reason"]), str(cause["text"]), str(cause["evidence"]), str(cause["component"])),
        fails=int(data["fails"]),
        backoff_s=float(data.get("backoff_s", 0.0)),
        rpc_port=None if port is None else int(port),
        store=str(data.get("store", "")),
        members=tuple(str(m) for m in data.get("members", ())),
        digest=str(data.get("digest", "")),
        by=str(data.get("by", "")),
        at=float(data.get("at", 0.0)),
    )


def member_dict(member: Member) -> dict[str, Any]:
    return {**vars(member), "phase": member.phase.value}


def member_of(data: Mapping[str, Any]) -> Member:
    port = data.get("rpc_port")
    return Member(
        n=int(data["n"]),
        phase=Phase(data["phase"]),
        digest=str(data.get("digest", "")),
        evidence=str(data.get("evidence", "")),
        rpc_port=None if port is None else int(port),
    )


def intent_dict(intent: Intent) -> dict[str, Any]:
    return {k: v for k, v in vars(intent).items() if k != "revision"}


def intent_of(data: Mapping[str, Any], revision: int = 0) -> Intent:
    return Intent(
        seq=int(data["seq"]),
        run=bool(data.get("run", True)),
        paused=bool(data.get("paused", False)),
        drain_s=float(data.get("drain_s", 0.0)),
        by=str(data.get("by", "")),
        why=str(data.get("why", "")),
        at=float(data.get("at", 0.0)),
        revision=revision,
    )


def fence_of(data: Mapping[str, Any], revision: int = 0) -> Fence:
    return Fence(str(data.get("by", "")), str(data.get("why", "")), float(data.get("at", 0.0)), revision)


def peer_dict(peer: Peer) -> dict[str, Any]:
    return {**vars(peer), "digests": dict(peer.digests), "heard": dict(peer.heard), "facts": dict(peer.facts)}


def peer_of(data: Mapping[str, Any]) -> Peer:
    return Peer(
        instance=str(data["instance"]),
        boot=str(data.get("boot", "")),
        version=str(data.get("version", "")),
        protocol=int(data.get("protocol", 0)),
        api=str(data.get("api", "")),
        at=float(data.get("at", 0.0)),
        digests={str(k): str(v) for k, v in dict(data.get("digests", {})).items()},
        heard={str(k): int(v) for k, v in dict(data.get("heard", {})).items()},
        facts={str(k): str(v) for k, v in dict(data.get("facts", {})).items()},
    )


def load(value: bytes) -> Mapping[str, Any] | None:
    """The object in a value, None where there is none."""
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read(make: Any, value: bytes, *more: Any) -> Any:
    """`make` of the value, None where it is not what it should be."""
    data = load(value)
    try:
        return None if data is None else make(data, *more)
    except _BAD:
        return None
