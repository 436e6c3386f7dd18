"""What the cluster file may say and this version cannot do: refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterable

from yrnode.config.cluster import Cluster
from yrnode.model.errors import UsageError

_NOT_YET = "this version cannot do that yet"


def refuse_underivable(cluster: Cluster) -> None:
    """UsageError with a line for each thing that no command line is made from."""
    lines = [f"{key}: {_NOT_YET}; {cure}" for key, cure in _underivable(cluster)]
    if lines:
        raise UsageError(*lines)


def _underivable(cluster: Cluster) -> Iterable[tuple[str, str]]:
    for name, group in cluster.groups.items():
        if group.kv_connector.mooncake is not None:
            yield f"groups.{name}.kv_connector.mooncake", "use ascend_store alone"
