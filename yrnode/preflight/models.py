"""The model of each group on this node can be read, where it is a path."""

from __future__ import annotations

import os
from pathlib import Path

from yrnode.components.host import Host
from yrnode.config.layout import servers


def problems(host: Host) -> list[str]:
    found = []
    for name, group in host.cluster.groups.items():
        if group.model.startswith("/") and servers(name, group, host.node):
            why = _unreadable(Path(group.model))
            if why:
                found.append(f"groups.{name}.model: {group.model}: {why}; correct the path or its permissions")
    return found


def _unreadable(path: Path) -> str:
    try:
        if not path.exists():
            return "does not exist"
        needed = os.R_OK | os.X_OK if path.is_dir() else os.R_OK
    except OSError as e:
        return e.strerror or str(e)
    return "" if os.access(path, needed) else "cannot be read"
