"""The datasystem's client inside a rank: where its worker is, and whether it reads other nodes' memory directly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from yrnode.components.host import Host
from yrnode.config.copying import REMOTE_H2D
from yrnode.config.layout import worker_address


def variables(host: Host, rank: str) -> dict[str, str]:
    """For the rank of this name. Releases of vllm-ascend read either the first or the file."""
    found = {
        "DS_WORKER_ADDR": worker_address(host.cluster, host.node),
        "YR_CONFIG_PATH": str(host.dir(rank) / "datasystem.json"),
        "DATASYSTEM_CLIENT_LOG_DIR": str(host.places.log_dir / f"{rank.replace('/', '-')}-datasystem"),
    }
    return {**found, REMOTE_H2D: "1"} if host.cluster.datasystem.remote_h2d else found


def files(host: Host, rank: str, env: Mapping[str, str]) -> dict[Path, str]:
    """The file that says the same as the rank's variables, whoever wrote those."""
    told: dict[str, object] = {"worker_addr": env.get("DS_WORKER_ADDR", worker_address(host.cluster, host.node))}
    if env.get(REMOTE_H2D) == "1":
        told["enable_remote_h2d"] = True
    return {host.dir(rank) / "datasystem.json": json.dumps(told) + "\n"}
