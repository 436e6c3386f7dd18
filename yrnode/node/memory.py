"""What this node must not forget between two daemons: each group's whole record, and how far this node had come with
it; what operators asked for; which store it knew.

One small file each in state_dir, written before what it says is acted on. A record that cannot be written is not
acted on. An operator's word is: a full disk must not keep anybody from stopping something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from yrnode.model.board import Intent
from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import GroupView
from yrnode.process import atomic
from yrnode.store import codec

STORE = "store.json"
WISHES = "wishes.json"


class Memory:
    """`aside` collects what was unreadable and set aside, for the caller to tell."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir
        self.aside: list[str] = []

    def save_group(self, view: GroupView) -> None:
        """OSError when it cannot be written."""
        kept = {"record": codec.record_dict(view.record), "started": view.started, "cleaned": view.cleaned}
        atomic.write(self._group(view.name), {**kept, "ended": view.ended})

    def load_group(self, view: GroupView) -> GroupView | None:
        """The view with what was kept of it; None where nothing was."""
        data = self._read(self._group(view.name))
        if data is None:
            return None
        try:
            # before the record was shared it stood alone in the file
            record = codec.record_of(data.get("record", data))
            started, cleaned = int(data.get("started", record.n)), int(data.get("cleaned", record.n))
        except (KeyError, TypeError, ValueError, AttributeError):
            self._put_aside(self._group(view.name), "wrong content")
            return None
        return replace(view, record=record, started=started, cleaned=cleaned, ended=bool(data.get("ended")))

    def save_store(self, store_id: str, settling: bool) -> None:
        """The store that this node knows, and whether others may still put back what it has lost. OSError when it
        cannot be written."""
        atomic.write(self._dir / STORE, {"id": store_id, "settling": settling})

    def load_store(self) -> tuple[str, bool]:
        """An empty name where none is known."""
        kept = self._read(self._dir / STORE) or {}
        return str(kept.get("id", "")), bool(kept.get("settling", False))

    def save_wishes(self, unwanted: Mapping[str, Cause], intents: Mapping[str, Intent]) -> None:
        """Components of this node that are to stay stopped, and who said so; and the intents that all nodes share.
        OSError when it cannot be written."""
        said = {target: codec.intent_dict(i) for target, i in intents.items()}
        atomic.write(self._dir / WISHES, {"unwanted": {k: c.text for k, c in unwanted.items()}, "intents": said})

    def load_wishes(self) -> tuple[dict[str, Cause], dict[str, Intent]]:
        data = self._read(self._dir / WISHES) or {}
        try:
            unwanted = {str(k): Cause(Reason.OPERATOR, str(text)) for k, text in data.get("unwanted", {}).items()}
            intents = {str(k): codec.intent_of(i) for k, i in data.get("intents", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            self._put_aside(self._dir / WISHES, "wrong content")
            return {}, {}
        return unwanted, intents

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
