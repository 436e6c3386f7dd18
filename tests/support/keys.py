"""The keys that yrnode keeps in a node's etcd, read and changed from outside."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from tests.support.etcd import encoded, post
from tests.support.node import YrNode


def etcd_url(node: YrNode) -> str:
    """Of the first node of its file, which runs the store in all tests."""
    text = node.config.read_text()
    address, port = (re.search(rf"{key}: ([0-9.]+)", text) for key in ("address", "client_port"))
    assert address
    assert port
    return f"http://{address[1]}:{port[1]}"


def record_key(node: YrNode, group: str) -> str:
    return f"/yrnode/{node.status()['cluster']}/groups/{group}/record"


def stored(node: YrNode, group: str) -> dict[str, Any]:
    """The group's record as the store has it; empty where it has none."""
    found = post(etcd_url(node), "kv/range", {"key": encoded(record_key(node, group))}).get("kvs")
    return json.loads(base64.b64decode(found[0]["value"])) if found else {}


def forgive(node: YrNode, group: str = "serve") -> None:
    """End the group's row of faults, as a long life would: a third one would end the group."""
    record = stored(node, group) | {"fails": 0}
    post(etcd_url(node), "kv/put", {"key": encoded(record_key(node, group)), "value": encoded(json.dumps(record))})
    node.wait("forgiven", lambda: node.status()["groups"][group]["fails"] == 0, 10)
