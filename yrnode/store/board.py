"""From the watch's events to the board: what all nodes share, as one node has read it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from yrnode.model.board import Board, Stored
from yrnode.store import codec
from yrnode.store.interface import Event, KeyValue
from yrnode.store.keys import ClusterKeys

log = logging.getLogger("yrnode.store")


def fold(board: Board, events: Iterable[Event], keys: ClusterKeys) -> Board:
    """The board after these events. A value that cannot be read counts as no key: it is never acted on. What none of
    them is about stays the very same mapping."""
    facts: dict[str, Any] = {}
    told: dict[str, dict[str, Any]] = {}

    def part(name: str) -> dict[str, Any]:
        # with hundreds of nodes one copy is enough for all events
        if name not in facts:
            facts[name] = dict(getattr(board, name))
        return facts[name]  # type: ignore[no-any-return]

    for event in events:
        # after a store was replaced the numbers may go back
        facts["revision"] = event.revision
        kv = event.kv
        revision = kv.mod_revision if kv is not None else 0
        match keys.parts(event.key):
            case ("store",):
                facts["store_id"] = kv.value.decode("utf-8", "replace") if kv is not None else ""
            case ("groups", group, "record"):
                record = _read(codec.record_of, kv)
                _put(part("records"), group, None if record is None else Stored(record, revision))
            case ("groups", group, "members", node):
                if group not in told:
                    told[group] = part("members")[group] = dict(board.phases(group))
                _put(told[group], node, _read(codec.member_of, kv))
            case ("intents", target):
                _put(part("intents"), target, _read(codec.intent_of, kv, revision))
            case ("fenced", node):
                _put(part("fences"), node, _read(codec.fence_of, kv, revision))
            case ("nodes", node):
                _put(part("nodes"), node, _read(codec.peer_of, kv))
    return replace(board, **facts)


def _put(where: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value


def _read(make: Any, kv: KeyValue | None, *more: Any) -> Any:
    if kv is None:
        return None
    found = codec.read(make, kv.value, *more)
    if found is None:
        log.warning("%s holds nothing that this version can read: it counts as absent", kv.key)
    return found
