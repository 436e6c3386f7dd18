"""A model of the store: swaps, leases and the datasystem's ring, in memory, on virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from yrnode.model.board import Board, Fence, Intent, Peer, Stored
from yrnode.model.group import GroupRecord, Member


@dataclass(frozen=True)
class Backup:
    board: Board
    ring: Mapping[str, str]


@dataclass
class ModelStore:
    """`board` is the truth. `ring`: the store's uuid that each living worker has registered in, by node.
    `blind`: swaps compare nothing (a mutant)."""

    board: Board = field(default_factory=lambda: Board(1, "store-1"))
    up: bool = True
    ring: dict[str, str] = field(default_factory=dict)
    ids: int = 1
    blind: bool = False

    def _set(self, **parts: Any) -> int:
        revision = self.board.revision + 1
        self.board = replace(self.board, revision=revision, **parts)
        return revision

    def swap(
        self,
        records: Mapping[str, GroupRecord],
        seen: Mapping[str, int],
        *,
        intents: int | None = None,
        fences: Mapping[str, int],
    ) -> bool:
        """Put records if those of revisions `seen` (0: none) are still there, no intent was put after `intents`, and
        the fences are as given."""
        there = self.board.records
        same = all((there[g].revision if g in there else 0) == seen[g] for g in records)
        newer = intents is not None and any(i.revision > intents for i in self.board.intents.values())
        moved = any(n not in self.board.fences or self.board.fences[n].revision != r for n, r in fences.items())
        if not self.blind and (not same or newer or moved):
            return False
        revision = self.board.revision + 1
        self._set(records={**there, **{g: Stored(r, revision) for g, r in records.items()}})
        return True

    def tell(self, group: str, node: str, member: Member | None) -> None:
        part = dict(self.board.phases(group))
        if member is None:
            part.pop(node, None)
        else:
            part[node] = member
        self._set(members={**self.board.members, group: part})

    def join(self, node: str, peer: Peer) -> None:
        self._set(nodes={**self.board.nodes, node: peer})

    def expire(self, node: str) -> None:
        """A node's lease is over: its key goes, and what it told."""
        nodes = {n: p for n, p in self.board.nodes.items() if n != node}
        members = {g: {n: m for n, m in part.items() if n != node} for g, part in self.board.members.items()}
        self._set(nodes=nodes, members=members)

    def say(self, target: str, intent: Intent, seen: int) -> bool:
        there = self.board.intents.get(target)
        if (there.revision if there else 0) != seen:
            return False
        intent = replace(intent, revision=self.board.revision + 1)
        self._set(intents={**self.board.intents, target: intent})
        return True

    def fence(self, node: str) -> None:
        self._set(fences={**self.board.fences, node: Fence("operator", revision=self.board.revision + 1)})

    def unfence(self, node: str, records: Mapping[str, int]) -> bool:
        now = {g: r.revision for g, r in self.board.records.items()}
        if any(now.get(g) != revision for g, revision in records.items()):
            return False
        self._set(fences={n: f for n, f in self.board.fences.items() if n != node})
        return True

    def wipe(self) -> None:
        self.ids += 1
        # another history: its numbers must not be taken for the old one's
        self.board = Board(1000 * self.ids, f"store-{self.ids}")

    def backup(self) -> Backup:
        return Backup(self.board, dict(self.ring))

    def restore(self, backup: Backup) -> None:
        """An older copy: the same uuid, earlier revisions, and the keys of leases that ran then."""
        self.board = backup.board
