"""What a group's ranks mean, as a short digest: nodes with different ones never start it together."""

import hashlib
import json

from yrnode.config import hccl
from yrnode.config.cluster import Cluster
from yrnode.config.layout import data_parallel_size

LENGTH = 12


def group_digest(cluster: Cluster, name: str) -> str:
    """Over the group and what all ranks share; not over names of directories, ports of HTTP or rendered text."""
    group = cluster.groups[name]
    meant: list[object] = [
        group.model_dump(mode="json"),
        cluster.env,
        [str(p) for p in cluster.env_from],
        list(cluster.bin.vllm),
    ]
    if group.kv_connector.mooncake is not None and group.peer is not None:
        # its ranks are told of the other group's sizes
        meant += [data_parallel_size(cluster.groups[group.peer]), cluster.groups[group.peer].tensor_parallel]
    # it depends on where in the file the group stands
    base = hccl.derived_base(cluster, name)
    if base is not None:
        meant.append({hccl.BASE_PORT: base})
    return _digest(meant)


def cache_digest(cluster: Cluster) -> str:
    """Over what the workers share."""
    return _digest([cluster.datasystem.model_dump(mode="json"), list(cluster.bin.dscli)])


def _digest(meant: object) -> str:
    text = json.dumps(meant, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
