"""What this node must not forget between two daemons: each group's whole record, and what operators asked for.

One small file each in state_dir, written before what it says is acted on.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Stage
from yrnode.process import atomic, table

WISHES = "wishes.json"


class Memory:
    """`aside` collects what was unreadable and set aside, for the caller to tell."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir
        self._boot = table.boot_id()
        self.aside: list[str] = []

    def save_group(self, name: str, record: GroupRecord) -> None:
        """OSError when it cannot be written."""
        atomic.write(self._group(name), {**_as_dict(record), "boot": self._boot})

    def load_group(self, name: str) -> GroupRecord | None:
        data = self._read(self._group(name))
        if data is None:
            return None
        try:
            record = _from_dict(data)
        except (KeyError, TypeError, ValueError):
            self._put_aside(self._group(name), "wrong content")
            return None
        # monotonic times of another boot say nothing
        return record if data.get("boot") == self._boot else replace(record, not_before=0.0)

    def save_wishes(self, unwanted: dict[str, Cause]) -> None:
        """What is to stay stopped, by component or group, and who said so. OSError when it cannot be written."""
        atomic.write(self._dir / WISHES, {"unwanted": {k: c.text for k, c in unwanted.items()}})

    def load_wishes(self) -> dict[str, Cause]:
        data = self._read(self._dir / WISHES) or {}
        unwanted = data.get("unwanted", {})
        if not isinstance(unwanted, dict):
            self._put_aside(self._dir / WISHES, "wrong content")
            return {}
        return {str(name): Cause(Reason.OPERATOR, str(text)) for name, text in unwanted.items()}

    def _group(self, name: str) -> Path:
        return self._dir / "groups" / f"{name}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            return atomic.read(path)
        except atomic.Unreadable as e:
            self._put_aside(path, str(e))
            return None

    def _put_aside(self, path: Path, why: str) -> None:
        where = atomic.set_aside(path)
        self.aside.append(
            f"{path} is unreadable, {f'set aside as {where.name}' if where else 'and in the way'}: {why}"
        )


def _as_dict(record: GroupRecord) -> dict[str, Any]:
    cause = record.cause
    return {
        "n": record.n,
        "stage": record.stage.value,
        "cause": {**asdict(cause), "reason": cause.reason.value},
        "fails": record.fails,
        "not_before": record.not_before,
        "rpc_port": record.rpc_port,
        "store": record.store,
    }


def _from_dict(data: dict[str, Any]) -> GroupRecord:
    cause = data["cause"]
    rpc_port = data.get("rpc_port")
    return GroupRecord(
        n=int(data["n"]),
        stage=Stage(data["stage"]),
        cause=Cause(Reason(cause["reason"]), str(cause["text"]), str(cause["evidence"]), str(cause["component"])),
        fails=int(data["fails"]),
        not_before=float(data["not_before"]),
        rpc_port=None if rpc_port is None else int(rpc_port),
        store=str(data.get("store", "")),
    )
