"""In what two cluster files differ, key by key, secrets covered. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yrnode.config.cluster import Cluster
from yrnode.config.layout import places
from yrnode.model.cover import Cover
from yrnode.model.secrets import COVERED, cover_argv, secret


@dataclass(frozen=True)
class Difference:
    """`key` as it is written in the file, such as groups.serve.args.max-model-len. `old`, `new`: JSON values, None
    where the key is not there; two secrets that differ look alike."""

    key: str
    old: Any
    new: Any


def differences(old: Cluster, new: Cluster) -> list[Difference]:
    """In the order of the file's keys. A key that is left out has its default."""
    return list(_compare("", old.model_dump(mode="json"), new.model_dump(mode="json"), False))


def stranded(old: Cluster, new: Cluster, node: str) -> list[str]:
    """Keys whose change a running node cannot follow: what runs would not be found again by a new yrnode."""
    before, after = places(old, node), places(new, node)
    pairs = {
        "cluster": (old.cluster, new.cluster),
        "state_dir": (before.state_dir, after.state_dir),
        "run_dir": (before.run_dir, after.run_dir),
    }
    return [key for key, (a, b) in pairs.items() if a != b]


def _compare(key: str, old: Any, new: Any, hidden: bool) -> Iterator[Difference]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            yield from _compare(
                f"{key}.{name}" if key else str(name), old.get(name), new.get(name), hidden or secret(str(name))
            )
        return
    yield Difference(key, _shown(old, hidden), _shown(new, hidden))


def _shown(value: Any, hidden: bool) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _shown(inner, hidden or secret(str(name))) for name, inner in value.items()}
    if hidden:
        return COVERED
    if isinstance(value, str):
        return Cover()(value)
    if isinstance(value, Sequence):
        return cover_argv(value) if all(isinstance(v, str) for v in value) else [_shown(v, hidden) for v in value]
    return value
