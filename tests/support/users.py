"""Users of an etcd for tests: root, and `node` with no more than yrnode needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.etcd import encoded

PASSWORD = "s3cret-of-the-store"


def enable_auth(call: Callable[[str, Mapping[str, Any]], object], *prefixes: str, more: Sequence[str] = ()) -> None:
    """From now on etcd asks who it is. `node` may read and write the prefixes; `more` are users without a right.

    `call` sends a path and a body to etcd's gateway.
    """
    calls: list[tuple[str, dict[str, Any]]] = [
        *(("auth/user/add", {"name": name, "password": PASSWORD}) for name in ("root", "node", *more)),
        *(("auth/role/add", {"name": name}) for name in ("root", "nodes")),
        *(("auth/role/grant", {"name": "nodes", "perm": _readwrite(prefix)}) for prefix in prefixes),
        ("auth/user/grant", {"user": "root", "role": "root"}),
        ("auth/user/grant", {"user": "node", "role": "nodes"}),
        ("auth/enable", {}),
    ]
    for path, body in calls:
        call(path, body)


def _readwrite(prefix: str) -> dict[str, str]:
    last = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"permType": "READWRITE", "key": encoded(prefix), "range_end": encoded(last)}
