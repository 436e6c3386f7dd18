"""The protocol with one rule taken away. The simulation must notice every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from tests.simulation.cluster import Rules
from tests.simulation.faults import live
from tests.simulation.node import Node
from tests.simulation.scenarios import second_ring, stale_fence
from yrnode.model.action import Action
from yrnode.model.board import BoardMove
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, GroupRecord, Stage
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.policy import component, coupling, evidence, gather, group, intents, protocol


@dataclass(frozen=True)
class Mutant:
    """`play(seed)` lives through a story that shows it; `breaks`: an invariant that then does not hold."""

    name: str
    breaks: str
    play: Callable[[int], object]
    change: Callable[[pytest.MonkeyPatch], None]


def _story(*mix: str, blind: bool = False, pair: bool = False) -> Callable[[int], object]:
    return lambda seed: live(seed, 4, mix, 6, blind=blind, pair=pair)


def _nothing(_: pytest.MonkeyPatch) -> None:
    pass


def _start_on_all_clean(m: pytest.MonkeyPatch) -> None:
    def may_begin(c: ComponentView, g: GroupView, s: Snapshot) -> bool:
        return g.cleaned == g.record.n and c.generation < g.record.n and not any(gather.lacking(g, s))

    m.setattr(component, "may_begin", may_begin)


def _absence_is_death(m: pytest.MonkeyPatch) -> None:
    def gone(g: GroupView, s: Snapshot) -> Cause | None:
        away = [n for n, a in s.absent.items() if n in g.nodes and s.now - a.since >= evidence.GONE_AFTER_S]
        return Cause(Reason.EXITED, f"{away[0]} is gone", "", f"{away[0]}/{g.name}") if away else None

    m.setattr(evidence, "_gone", gone)


def _fences_not_compared(m: pytest.MonkeyPatch) -> None:
    m.setattr(gather, "fences_used", lambda g, s: {})


def _old_members_forgotten(m: pytest.MonkeyPatch) -> None:
    whole = gather.nodes

    def nodes(g: GroupView, s: Snapshot, *, but: str = "") -> Iterator[str]:
        return whole(replace(g, record=replace(g.record, members=())), s, but=but)

    m.setattr(gather, "nodes", nodes)


def _taken_along_again(m: pytest.MonkeyPatch) -> None:
    def others(g: GroupView, s: Snapshot) -> dict[str, GroupRecord]:
        return {name: s.board.records[name].record for name in g.coupled if name in s.board.records}

    m.setattr(coupling, "others", others)


def _a_coupled_restart_is_evidence(m: pytest.MonkeyPatch) -> None:
    whole = evidence.of

    def of(g: GroupView, s: Snapshot) -> Cause | None:
        gone = [o for o in g.coupled if s.board.records[o].record.stage is Stage.STOP]
        return whole(g, s) or (Cause(Reason.EXITED, f"{gone[0]} restarts", "", g.members[0]) if gone else None)

    m.setattr(evidence, "of", of)


def _any_protocol(m: pytest.MonkeyPatch) -> None:
    m.setattr(protocol, "strangers", lambda s: {})


def _no_deadline(m: pytest.MonkeyPatch) -> None:
    whole = component.fault

    def fault(c: ComponentView, s: Snapshot) -> Cause | None:
        found = whole(c, s)
        return None if found is not None and found.reason is Reason.START_TIMEOUT else found

    m.setattr(component, "fault", fault)
    m.setattr(evidence, "_late", lambda g, s: None)


def _believes_an_older_record(m: pytest.MonkeyPatch) -> None:
    whole = group.decide

    def decide(g: GroupView, s: Snapshot) -> Action | None:
        stored = s.board.records.get(g.name)
        if stored is not None and stored.record != g.record:
            return Action(GroupMove.LEARN, g.name, stored.record.cause, record=stored.record)
        return whole(g, s)

    m.setattr(group, "decide", decide)


def _intents_without_number(m: pytest.MonkeyPatch) -> None:
    whole = intents.decide

    def decide(s: Snapshot) -> list[Action]:
        heard = [
            Action(BoardMove.HEED, target, Cause(Reason.OPERATOR, "as stored"), intent=stored)
            for target, stored in s.board.intents.items()
            if s.intents.get(target) != stored
            and target not in s.saying
            and (s.intents.get(target) is None or s.intents[target].revision or not s.fresh)
        ]
        return heard or whole(s)

    m.setattr(intents, "decide", decide)


def _deaf(node: Node) -> None:
    node.proven_at = node.cluster.now


# a frozen watch is as silent as one where nothing happens
SILENT = Rules(prove=_deaf, fresh=lambda n: bool(n.world.board.store_id))
RANKS = ("rank_dies", "rank_dies", "rank_hangs")
STORES = ("store_down", "store_copied", "store_copied", "store_restored", "store_restored")
STARTS = ("rank_dies", "rank_dies", "start_sticks", "host_reboots")
MUTANTS = [
    Mutant("a bump without a swap", "", _story(*RANKS, "cut", blind=True), _nothing),
    Mutant(
        "start on all clean, not on go", "", _story(*RANKS, "operator_stops_node", "late_watch"), _start_on_all_clean
    ),
    Mutant("an absent key is a dead node", "B", _story("daemon_dies", "cut"), _absence_is_death),
    Mutant("a watch without a lease", "D", lambda seed: second_ring(seed, SILENT), _nothing),
    Mutant("fences not compared at go", "A", stale_fence, _fences_not_compared),
    Mutant("members of the old record forgotten", "A", _story("node_leaves_the_file"), _old_members_forgotten),
    Mutant("one that stops is taken along again", "B", _story(*RANKS, pair=True), _taken_along_again),
    Mutant("a coupled restart is evidence", "B", _story(*RANKS, pair=True), _a_coupled_restart_is_evidence),
    Mutant("any protocol will do", "H", _story(*RANKS, "protocol_changes", "protocol_changes"), _any_protocol),
    Mutant("a deadline is no evidence", "G", _story(*STARTS), _no_deadline),
    Mutant("an older record is believed", "E", _story(*STORES, *RANKS), _believes_an_older_record),
    Mutant(
        "intents without number",
        "F",
        _story(*STORES, "operator_pauses", "operator_stops_node"),
        _intents_without_number,
    ),
]
