"""What vLLM is told about its KV connectors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.components.conftest import HostOf, by_name, flags
from yrnode.components import vllm
from yrnode.config.digest import group_digest

PD = """
cluster: c
nodes: {{n0: {{address: 10.0.0.1}}, n1: {{address: 10.0.0.2}}}}
groups:
  p:
    ranks: {{n0: 1}}
    model: m
    tensor_parallel: 8
    role: producer
    peer: d
    kv_connector: {{{p}}}
  d:
    ranks: {{n1: 2}}
    model: m
    tensor_parallel: 4
    role: consumer
    peer: p
    kv_connector: {{{d}}}
"""
STORE = """
cluster: c
nodes: {{n0: {{address: 10.0.0.1}}}}
groups: {{s: {{ranks: {{n0: 2}}, model: m, role: {role}, kv_connector: {{ascend_store: {{}}}}}}}}
"""
MOONCAKE = "mooncake: {kv_port: 30100}"
MODULE = "vllm_ascend.distributed.mooncake_connector"


def transfer(host_of: HostOf, rank: str, node: str, p: str = MOONCAKE, d: str = MOONCAKE) -> Any:
    return json.loads(flags(by_name(host_of(PD.format(p=p, d=d), node))[rank].argv)["kv-transfer-config"])


def mooncake(role: str, **more: Any) -> dict[str, Any]:
    sizes = {"prefill": {"dp_size": 1, "tp_size": 8}, "decode": {"dp_size": 2, "tp_size": 4}}
    return {
        "kv_connector": "MooncakeConnectorV1",
        "kv_role": role,
        "kv_port": "30100",
        "kv_connector_module_path": MODULE,
        "kv_connector_extra_config": {"use_ascend_direct": True, **sizes, **more},
    }


def test_mooncake_alone_stands_at_the_top(host_of: HostOf) -> None:
    assert transfer(host_of, "rank/p/0", "n0") == mooncake("kv_producer")
    given = 'mooncake: {engine_id: "7", use_ascend_direct: false, extra: {a: 1}, kv_port: 30100}'
    expected = {**mooncake("kv_producer", use_ascend_direct=False, a=1), "engine_id": "7"}
    assert transfer(host_of, "rank/p/0", "n0", p=given) == expected


def test_the_store_alone_stands_at_the_top(host_of: HostOf) -> None:
    text = STORE.format(role="consumer")
    found = json.loads(flags(by_name(host_of(text))["rank/s/1"].argv)["kv-transfer-config"])
    assert found == {
        "kv_connector": "AscendStoreConnector",
        "kv_role": "kv_consumer",
        "kv_connector_extra_config": {"lookup_rpc_port": "1", "backend": "yuanrong"},
    }


def test_both_stand_below_a_multi_connector_with_one_role(host_of: HostOf) -> None:
    found = transfer(host_of, "rank/d/1", "n1", MOONCAKE, f"{MOONCAKE}, ascend_store: {{extra: {{b: 2}}}}")
    assert found == {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_consumer",
        "kv_connector_extra_config": {
            "connectors": [
                # the sizes are the same on both sides, whichever group names the other
                mooncake("kv_consumer"),
                {
                    "kv_connector": "AscendStoreConnector",
                    "kv_role": "kv_consumer",
                    "kv_connector_extra_config": {"lookup_rpc_port": "1", "backend": "yuanrong", "b": 2},
                },
            ]
        },
    }


def test_the_engine_id_is_at_the_top_alone(host_of: HostOf) -> None:
    found = transfer(host_of, "rank/p/0", "n0", 'mooncake: {engine_id: "0"}, ascend_store: {}', MOONCAKE)
    assert found["engine_id"] == "0"
    assert not any("engine_id" in part for part in found["kv_connector_extra_config"]["connectors"])
    other = transfer(host_of, "rank/d/0", "n1", 'mooncake: {engine_id: "0"}, ascend_store: {}', MOONCAKE)
    assert "engine_id" not in other


@pytest.mark.parametrize(
    ("prefill", "decode", "asked"),
    [
        (MOONCAKE, MOONCAKE, [False, False]),
        (f"{MOONCAKE}, ascend_store: {{}}", f"{MOONCAKE}, ascend_store: {{}}", [True, False]),
        (MOONCAKE, f"{MOONCAKE}, ascend_store: {{extra: {{consumer_is_to_load: true}}}}", [False, True]),
    ],
)
def test_only_what_reads_blocks_is_asked_for_them(
    host_of: HostOf, prefill: str, decode: str, asked: list[bool]
) -> None:
    """A transfer holds nothing, and a consumer looks into the store only when it is told to load."""
    text = PD.format(p=prefill, d=decode)
    specs = [by_name(host_of(text))["rank/p/0"], by_name(host_of(text, "n1"))["rank/d/0"]]
    assert [any(c.name == "cache" for c in spec.checks) for spec in specs] == asked
    assert [vllm.target(spec).external for spec in specs] == asked
    # whoever has none is told nothing of the datasystem
    told = ["ascend_store" in connectors for connectors in (prefill, decode)]
    assert ["DS_WORKER_ADDR" in spec.env for spec in specs] == told


def test_nodes_with_other_sizes_of_the_peer_never_start_a_group_together(host_of: HostOf) -> None:
    text = PD.format(p=MOONCAKE, d=MOONCAKE)
    host = host_of(text)
    before = group_digest(host.cluster, "p")
    for changed in (text.replace("n1: 2", "n1: 3"), text.replace("tensor_parallel: 4", "tensor_parallel: 2")):
        assert group_digest(host_of(changed).cluster, "p") != before
    other = text.replace("tensor_parallel: 4", "tensor_parallel: 4\n    port: 7000")
    assert group_digest(host_of(other).cluster, "p") == before
