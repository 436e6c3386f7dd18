"""What a rank's own flags say of its KV connectors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

FLAG = "--kv-transfer-config"
_TRANSFER = (
    *("MooncakeConnector", "MooncakeConnectorV1", "MooncakeHybridConnector", "MooncakeLayerwiseConnector"),
    "NixlConnector",
)
"""They move blocks from prefill to decode ranks, and keep none."""


def reads_external(argv: Sequence[str]) -> bool:
    """Whether the rank looks for blocks in an external cache.

    A consumer does not, unless it is told to load: its blocks come from prefill ranks, and what it computes stays.
    """
    return FLAG in argv[:-1] and reads(argv[list(argv).index(FLAG) + 1])


def reads(text: str) -> bool:
    """The same of the flag's value."""
    try:
        config = json.loads(text)
        return any(_reads(one, config) for one in _connectors(config))
    except (ValueError, AttributeError, TypeError):
        # vllm will say what is wrong with it
        return True


def _connectors(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parts = (config.get("kv_connector_extra_config") or {}).get("connectors")
    if not parts:
        yield config
    for part in parts or ():
        yield from _connectors(part)


def _reads(connector: dict[str, Any], whole: dict[str, Any]) -> bool:
    if connector.get("kv_connector") in _TRANSFER:
        return False
    extra = connector.get("kv_connector_extra_config") or {}
    role = connector.get("kv_role") or whole.get("kv_role")
    return role != "kv_consumer" or bool(extra.get("consumer_is_to_load"))
