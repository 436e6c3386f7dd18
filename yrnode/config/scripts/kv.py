"""`--kv-transfer-config` of a script → the cluster file's `kv_connector` and `role`, where it says the same."""

import json
from dataclasses import dataclass
from typing import Any

_TOP = {"kv_connector", "kv_role", "kv_connector_extra_config", "engine_id"}
_STORE, _TRANSFER = "AscendStoreConnector", "MooncakeConnectorV1"
_MODULE = "vllm_ascend.distributed.mooncake_connector"
_ROLES = {"kv_both": "both", "kv_producer": "producer", "kv_consumer": "consumer"}


@dataclass(frozen=True)
class Connectors:
    """What a rank is told about its KV connectors."""

    role: str
    """both, producer or consumer."""
    store: dict[str, Any] | None = None
    """Keys of `ascend_store`."""
    transfer: dict[str, Any] | None = None
    """Keys of `mooncake`."""
    lookup_port: str = ""
    """`lookup_rpc_port`; yrnode gives each rank its number."""
    sizes: tuple[Any, Any] = (None, None)
    """Mooncake's sizes of prefill and decode; yrnode takes them from the groups."""


def mapping(text: str) -> dict[str, Any] | None:
    """JSON text as a mapping that a cluster file can hold and gives back as it is; None for other text."""
    try:
        found = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
        same = isinstance(found, dict) and _depth(found) <= 20 and json.loads(json.dumps(found)) == found
        return found if same and not _infinite(found) else None
    except (ValueError, RecursionError):
        return None


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or "" in found or "<<" in found:
        raise ValueError("a key twice, an empty one, or one that YAML takes for something else")
    return found


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _infinite(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value in (float("inf"), float("-inf")) if isinstance(value, float) else any(map(_infinite, inner))


def role_of(config: dict[str, Any]) -> str | None:
    """The cluster file's word for `kv_role`."""
    return _ROLES.get(str(config.get("kv_role")))


def connectors(config: dict[str, Any]) -> Connectors | None:
    """The configuration in the cluster file's keys; None where they cannot say all of it."""
    role = role_of(config)
    if role is None:
        return None
    parts = [config]
    if config.get("kv_connector") == "MultiConnector":
        extra = config.get("kv_connector_extra_config")
        if config.keys() - _TOP or not isinstance(extra, dict) or extra.keys() != {"connectors"}:
            return None
        parts = extra["connectors"]
    if not isinstance(parts, list) or not all(isinstance(p, dict) and role_of(p) == role for p in parts):
        return None
    names = [part.get("kv_connector") for part in parts]
    if names not in ([_STORE], [_TRANSFER], [_TRANSFER, _STORE]):
        return None
    found: dict[str, Any] = {}
    for part in parts:
        own = _store(part, config) if part["kv_connector"] == _STORE else _transfer(part, config)
        if own is None:
            return None
        found |= own
    if "engine_id" in config and "transfer" not in found:
        return None
    return Connectors(role, **found)


def _extra(part: dict[str, Any], top: dict[str, Any], more: set[str]) -> dict[str, Any] | None:
    """A copy of the connector's own keys; None where there are keys beside that mean something else."""
    allowed = more | (_TOP if part is top else _TOP - {"engine_id"})
    extra = part.get("kv_connector_extra_config", {})
    return dict(extra) if isinstance(extra, dict) and not part.keys() - allowed else None


def _store(part: dict[str, Any], top: dict[str, Any]) -> dict[str, Any] | None:
    extra = _extra(part, top, set())
    if extra is None or not isinstance(extra.get("backend"), str):
        return None
    port, own = str(extra.pop("lookup_rpc_port", "")), {"backend": extra.pop("backend")}
    return {"store": {**own, **({"extra": extra} if extra else {})}, "lookup_port": port}


def _transfer(part: dict[str, Any], top: dict[str, Any]) -> dict[str, Any] | None:
    extra = _extra(part, top, {"kv_port", "kv_connector_module_path"})
    port = str(part.get("kv_port", ""))
    if extra is None or not port.isdecimal():
        return None
    own: dict[str, Any] = {"kv_port": int(port)}
    if "engine_id" in top:
        own["engine_id"] = str(top["engine_id"])
    if extra.pop("use_ascend_direct", False) is not True:
        own["use_ascend_direct"] = False
    if part.get("kv_connector_module_path") != _MODULE:
        if not isinstance(part.get("kv_connector_module_path"), str):
            return None
        own["module_path"] = part["kv_connector_module_path"]
    sizes = extra.pop("prefill", None), extra.pop("decode", None)
    return {"transfer": {**own, **({"extra": extra} if extra else {})}, "sizes": sizes}
