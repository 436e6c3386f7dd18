"""Asks the daemons of the other nodes, over the read-only interface that their keys in the store name."""

from __future__ import annotations

import http.client
import ipaddress
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from yrnode.cli.client import Client

TIMEOUT_S = 5.0
AT_ONCE = 16


def ask_others(client: Client, config: str | None, path: str) -> dict[str, Any]:
    """By node, its JSON, or `{"error": why there is none}`. Only of nodes that the cluster file names."""
    from yrnode.config.load import load

    status = client.read("/status")
    cluster = load(config)
    addresses = {n: node.address for n, node in cluster.nodes.items() if n != status["node"]}
    apis = {n: (status["peers"].get(n) or {}).get("api") for n in addresses}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = {n: pool.submit(_ask, n, cluster.cluster, apis[n], addresses[n], path) for n in addresses}
        return {n: future.result() for n, future in asked.items()}


def _ask(node: str, cluster: str, api: str | None, address: str, path: str) -> dict[str, Any]:
    if not api:
        return {"error": "its yrnode is not there, see yrnode status"}
    host, port = reached(api, address)
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        who, body = response.headers.get("Yrnode-Node"), response.read()
        if who != f"{cluster}/{node}":
            # by default every node's interface listens on its own loopback, where this one's answers
            answers = f"{api} is answered by {who or 'something else than yrnode'}"
            return {"error": f"{answers}; give {node} an address that others reach: api.listen"}
        data = json.loads(body)
        if response.status == 200 and isinstance(data, dict):
            return data
        return {"error": f"{api}: HTTP {response.status}"}
    except (OSError, http.client.HTTPException, ValueError) as e:
        text = getattr(e, "strerror", None) or str(e) or type(e).__name__
        hint = "; it listens on its own loopback alone: api.listen" if _loopback(host) and host != address else ""
        return {"error": f"{api}: {text}{hint}"}
    finally:
        connection.close()


def reached(api: str, address: str) -> tuple[str, int]:
    """Host and port: the node's own address where it listens on all."""
    host, _, port = api.rpartition(":")
    host = host.strip("[]")
    return (address if host in ("0.0.0.0", "::", "") else host), int(port)  # noqa: S104  no listener of ours


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
