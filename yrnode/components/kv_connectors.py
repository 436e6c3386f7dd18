"""`--kv-transfer-config`: what vLLM is told about its KV connectors."""

from __future__ import annotations

from typing import Any

from yrnode.config.cluster import Cluster
from yrnode.config.group import AscendStore, Group, Mooncake
from yrnode.config.layout import data_parallel_size

_TRANSFER = "MooncakeConnectorV1"


def transfer_config(cluster: Cluster, group: Group, rank: int) -> dict[str, Any] | None:
    """The flag's value for the server whose first global rank is `rank`; None without a connector.

    One connector stands at the top, two below a MultiConnector in the order in which vLLM asks them: what prefill
    hands over first, then the store. Both know one role.
    """
    own, parts = group.kv_connector, []
    if own.mooncake is not None:
        parts.append(_mooncake(cluster, group, own.mooncake))
    if own.ascend_store is not None:
        parts.append(_ascend_store(group, own.ascend_store, rank))
    if not parts:
        return None
    top = parts[0] if len(parts) == 1 else _part("MultiConnector", group, {"connectors": parts})
    if own.mooncake is not None and own.mooncake.engine_id is not None:
        # left out, each server makes one up at its start, so that its peers never take it for its predecessor
        top["engine_id"] = own.mooncake.engine_id
    return top


def _part(name: str, group: Group, extra: dict[str, Any]) -> dict[str, Any]:
    return {"kv_connector": name, "kv_role": f"kv_{group.role}", "kv_connector_extra_config": extra}


def _mooncake(cluster: Cluster, group: Group, own: Mooncake) -> dict[str, Any]:
    other = cluster.groups[group.peer or ""]
    prefill, decode = (other, group) if group.role == "consumer" else (group, other)
    extra = {
        "use_ascend_direct": own.use_ascend_direct,
        "prefill": _sizes(prefill),
        "decode": _sizes(decode),
        **own.extra,
    }
    more = {"kv_port": str(own.kv_port), "kv_connector_module_path": own.module_path}
    return {**_part(_TRANSFER, group, extra), **more}


def _sizes(group: Group) -> dict[str, int]:
    return {"dp_size": data_parallel_size(group), "tp_size": group.tensor_parallel}


def _ascend_store(group: Group, own: AscendStore, rank: int) -> dict[str, Any]:
    extra = {"lookup_rpc_port": str(rank), "backend": own.backend, **own.extra}
    return _part("AscendStoreConnector", group, extra)
