"""The secrets that yrnode knows on this node: what must not be seen wherever it shows text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from yrnode.config.cluster import Cluster
from yrnode.model.cover import Cover, values_of
from yrnode.model.spec import ComponentSpec
from yrnode.process import atomic, record, table


def cover_of(cluster: Cluster, file: str, specs: Iterable[ComponentSpec]) -> Cover:
    """What covers them. `file`: the cluster file."""
    return Cover([*of_file(cluster.model_dump(mode="json"), file), *of_specs(specs)])


def of_file(data: Any, file: str) -> list[str]:
    """Of a cluster file's nested data, also of a faulty one; with etcd's password, which is in a file of its own."""
    etcd = data.get("etcd") if isinstance(data, dict) else None
    if not isinstance(etcd, dict):
        return values_of(data)
    # what is under tls names files
    found = values_of({**data, "etcd": {**etcd, "tls": None}})
    with contextlib.suppress(OSError, KeyError, TypeError):
        path = Path(file).absolute().parent / etcd["auth"]["password_file"]
        found.append(path.read_text("utf-8", "replace").strip())
    return found


def of_specs(specs: Iterable[ComponentSpec]) -> list[str]:
    """Of what is run: `env_from` has its own, which the file has not."""
    return [value for s in specs for value in (*values_of(s.argv), *values_of(s.env))]


def of_running(run_dir: Path) -> list[str]:
    """Of what still runs as it was started: a secret that the file has no more serves until then, and what `env_from`
    gave is in no file. A process that this user may not read has none."""
    found: list[str] = []
    for path in sorted(run_dir.glob("*.json")):
        kept = None
        with contextlib.suppress(OSError, atomic.Unreadable):
            kept = record.load(path)
        for ident in (kept.launched, kept.main) if kept is not None else ():
            if ident is not None and ident.find() is not None:
                env = dict(f.split("=", 1) for f in _fields(ident.pid, "environ") if "=" in f)
                found += [*values_of(env), *values_of(_fields(ident.pid, "cmdline"))]
    return found


def _fields(pid: int, name: str) -> list[str]:
    try:
        return table.content(f"/proc/{pid}/{name}").decode("utf-8", "surrogateescape").rstrip("\0").split("\0")
    except OSError:
        return []
