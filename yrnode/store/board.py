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
    """The board after these events. A value that cannot be read counts as no key: it is never acted on."""
    records, members = dict(board.records), dict(board.members)
    intents, fences, nodes = dict(board.intents), dict(board.fences), dict(board.nodes)
    # with hundreds of nodes one copy of a group's part is enough for all events
    parts: dict[str, dict[str, Any]] = {}
    store_id, revision = board.store_id, board.revision
    for event in events:
        # after a store was replaced the numbers may go back
        revision = event.revision
        kv = event.kv
        match keys.parts(event.key):
            case ("store",):
                store_id = kv.value.decode("utf-8", "replace") if kv is not None else ""
            case ("groups", group, "record"):
                record = _read(codec.record_of, kv)
                _put(records, group, Stored(record, kv.mod_revision) if record is not None and kv else None)
            case ("groups", group, "members", node):
                if group not in parts:
                    members[group] = parts[group] = dict(members.get(group, {}))
                _put(parts[group], node, _read(codec.member_of, kv))
            case ("intents", target):
                _put(intents, target, _read(codec.intent_of, kv, kv.mod_revision if kv else 0))
            case ("fenced", node):
                _put(fences, node, _read(codec.fence_of, kv, kv.mod_revision if kv else 0))
            case ("nodes", node):
                _put(nodes, node, _read(codec.peer_of, kv))
    return replace(
        board,
        revision=revision,
        store_id=store_id,
        records=records,
        members=members,
        intents=intents,
        fences=fences,
        nodes=nodes,
    )


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
