"""Which ranks look for blocks in an external cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from yrnode.policy.connector import reads_external


def store(role: str = "", **extra: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"kv_connector": "AscendStoreConnector", "kv_connector_extra_config": extra}
    return {**found, "kv_role": role} if role else found


def several(role: str, *connectors: dict[str, Any]) -> dict[str, Any]:
    extra = {"connectors": list(connectors)}
    return {"kv_connector": "MultiConnector", "kv_role": role, "kv_connector_extra_config": extra}


MOONCAKE = {"kv_connector": "MooncakeConnectorV1", "kv_connector_extra_config": {"use_ascend_direct": True}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (store("kv_both"), True),
        (store("kv_producer"), True),
        (store("kv_consumer"), False),
        (store("kv_consumer", consumer_is_to_load=True), True),
        (several("kv_producer", MOONCAKE, store("kv_producer")), True),
        (several("kv_consumer", MOONCAKE, store("kv_consumer")), False),
        (several("kv_consumer", MOONCAKE, store()), False),
        (several("kv_consumer", MOONCAKE, store(consumer_is_to_load=True)), True),
        ({**MOONCAKE, "kv_role": "kv_producer"}, False),
        # somebody's own: nobody here knows better
        ({"kv_connector": "Mine", "kv_role": "kv_both"}, True),
        ({"kv_connector": "Mine", "kv_connector_extra_config": None}, True),
        ([], True),
        ("{", True),
    ],
)
def test_by_role_and_connector(config: Any, expected: bool) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    assert reads_external(("vllm", "serve", "m", "--kv-transfer-config", text, "--port", "1")) is expected


@pytest.mark.parametrize("argv", [(), ("vllm",), ("vllm", "--kv-transfer-config")])
def test_without_one(argv: tuple[str, ...]) -> None:
    assert not reads_external(argv)
