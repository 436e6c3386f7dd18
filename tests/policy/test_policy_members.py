"""How an etcd member begins: every case in which a start could go wrong, and what is done instead."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import snapshot, view
from yrnode.model.cause import Reason
from yrnode.model.member import Data, Heard, Kept, Listed, Living, MemberMove, MemberStep, MemberView, Word
from yrnode.model.spec import CheckSpec
from yrnode.model.state import Move, State
from yrnode.model.verdict import Result, Tally, Verdict, fail, ok
from yrnode.policy import component, members

M, H = MemberMove, Heard
URLS = {f"n{i}": f"http://10.0.0.{i}:2380" for i in range(5)}
SILENT, FRESH, FORMED = H.SILENT, H.FRESH, H.FORMED
MINE, CLUSTER, STORE = 0x20, 0xC1, "uuid"
KEPT = Kept(CLUSTER, MINE, STORE)


def listed(i: int, started: bool = True, **facts: Any) -> Listed:
    return replace(Listed(0x20 + i, f"n{i}" if started else "", (URLS[f"n{i}"],), started), **facts)


ALL = (listed(0), listed(1), listed(2))
OTHERS = ALL[1:]
ALIVE = Living("n1", CLUSTER, STORE, ALL)


def seen(data: Data, heard: tuple[Heard, ...] = (SILENT, SILENT), **facts: Any) -> MemberView:
    """n0 of as many nodes as are heard of, and itself."""
    nodes = dict(list(URLS.items())[: len(heard) + 1])
    words = {f"n{i + 1}": word for i, word in enumerate(heard)}
    return MemberView("n0", nodes, data, heard=words, cure="CURE", **facts)


def step(data: Data, heard: tuple[Heard, ...] = (SILENT, SILENT), **facts: Any) -> MemberStep:
    found = members.decide(seen(data, heard, **facts))
    assert found.cause.reason is Reason.MEMBER
    assert found.cause.text
    return found


NONE = Data.NONE


@pytest.mark.parametrize(
    ("heard", "move"),
    [
        ((SILENT, SILENT), M.WAIT),
        ((FRESH, FRESH), M.NEW),
        # somebody knows of a cluster, and it has no quorum
        ((FORMED, SILENT), M.WAIT),
        ((FORMED, FRESH), M.WAIT),
        ((FRESH, SILENT, SILENT, SILENT), M.WAIT),
        ((FRESH, FRESH, FRESH, FRESH), M.NEW),
        ((FRESH, FRESH, FRESH, FORMED), M.WAIT),
    ],
)
def test_a_first_start_takes_a_majority_that_is_new(heard: tuple[Heard, ...], move: MemberMove) -> None:
    assert step(NONE, heard).move is move
    # a node that was a member of a cluster begins no other one, whatever it hears
    assert step(NONE, heard, kept=KEPT).move is M.WAIT
    assert step(NONE, heard, kept=Kept()).move is M.WAIT


@pytest.mark.parametrize("heard", [(FRESH, SILENT), (FRESH, FRESH, SILENT, SILENT)])
@pytest.mark.parametrize(("silent_s", "move"), [(None, M.WAIT), (9.9, M.WAIT), (10.0, M.NEW)])
def test_who_is_silent_is_given_time_before_others_begin_without_him(
    heard: tuple[Heard, ...], silent_s: float | None, move: MemberMove
) -> None:
    last = f"n{len(heard)}"
    others = {f"n{i + 1}": 99.0 for i, word in enumerate(heard) if word is SILENT}
    found = step(NONE, heard, silent_s={} if silent_s is None else {**others, last: silent_s})
    assert found.move is move
    assert move is M.NEW or last in found.cause.text
    # however long
    assert step(NONE, heard, silent_s={last: 999.0, **others}, kept=KEPT).move is M.WAIT


def test_silence_takes_no_word_back() -> None:
    words = [None, *Heard]
    assert {(a, b): members.hear(a, b) for a in words for b in Heard} == {
        (a, b): FORMED if (a, b) == (FORMED, SILENT) else b for a in words for b in Heard
    }


def test_whom_it_waits_for_is_named() -> None:
    first = step(NONE).cause
    assert "n1, n2: no quorum" in first.text
    assert first.evidence == "1 of 3 members are there, it takes 2"
    lost = step(NONE, (FORMED, SILENT)).cause
    assert "its cluster exists" in lost.text
    assert lost.evidence == "known to n1; CURE"
    assert "CURE" in step(NONE, kept=KEPT).cause.evidence


def test_lost_data_are_replaced_in_two_steps() -> None:
    remove = step(NONE, kept=KEPT, living=ALIVE)
    assert (remove.move, remove.id) == (M.REMOVE, MINE)
    # a machine that was set up again remembers nothing
    assert step(NONE, living=ALIVE).move is M.REMOVE
    assert step(NONE, kept=KEPT, living=replace(ALIVE, members=OTHERS)).move is M.ADD
    new = listed(0, started=False, id=0x99)
    living = replace(ALIVE, members=(*OTHERS, new))
    join = step(NONE, kept=KEPT, living=living, added=0x99)
    assert (join.move, join.members) == (M.JOIN, living.members)


def test_an_entry_that_may_have_been_used_is_not_used_again() -> None:
    unused = replace(ALIVE, members=(*OTHERS, listed(0, started=False)))
    # bootstrapped by the others before this node's first start
    assert step(NONE, living=unused).move is M.JOIN
    # it may have voted before it told the others where it is
    assert step(NONE, kept=KEPT, living=unused).move is M.REMOVE
    # added by an earlier attempt whose answer was lost
    assert step(NONE, kept=KEPT, living=unused, added=0x99).move is M.REMOVE


def test_nobody_elses_entry_is_removed() -> None:
    elsewhere = replace(listed(0), peer_urls=("http://10.9.9.9:2380",))
    found = step(NONE, kept=KEPT, living=replace(ALIVE, members=(*OTHERS, elsewhere)))
    assert found.move is M.WAIT
    assert "etcdctl member remove 20" in found.cause.evidence
    entries = [*ALL, elsewhere, listed(0, started=False), *(listed(i, started=False) for i in (1, 2))]
    for size in range(4):
        for chosen in itertools.combinations(entries, size):
            for kept, added in itertools.product((None, KEPT, Kept()), (0, 0x20, 0x99)):
                living = replace(ALIVE, members=chosen)
                found = step(NONE, kept=kept, living=living, added=added)
                assert found.move is not M.NEW
                if found.move is M.REMOVE:
                    mine = [m for m in chosen if URLS["n0"] in m.peer_urls]
                    assert found.id in {m.id for m in mine}


def test_a_stranger_at_the_clients_port_is_not_joined() -> None:
    stranger = Living("n1", 0xEE, "", (listed(1),))
    found = step(NONE, (FORMED, SILENT), living=stranger)
    assert found.move is M.WAIT
    assert "n1 holds nothing of this cluster" in found.cause.text
    assert step(Data.WHOLE, (FORMED, SILENT), kept=KEPT, living=stranger).move is M.START


WHOLE = Data.WHOLE


@pytest.mark.parametrize(
    ("facts", "move", "words"),
    [
        ({}, M.START, ""),
        ({"kept": KEPT}, M.START, ""),
        ({"kept": KEPT, "living": ALIVE}, M.START, ""),
        ({"living": ALIVE}, M.START, ""),
        ({"kept": Kept(), "living": ALIVE}, M.START, ""),
        # what etcd or the others said of it is not so, or not any more
        ({"kept": KEPT, "living": ALIVE, "outcast": True}, M.START, ""),
        ({"kept": KEPT, "living": replace(ALIVE, members=OTHERS)}, M.ASIDE, "member 20 was removed"),
        ({"kept": replace(KEPT, cluster=0xC0), "living": ALIVE}, M.ASIDE, "cluster c0, the one that lives is c1"),
        ({"kept": replace(KEPT, store="old"), "living": ALIVE}, M.ASIDE, "store old, the one that lives is uuid"),
        ({"living": ALIVE, "outcast": True}, M.ASIDE, "none of this cluster"),
        ({"kept": Kept(), "living": ALIVE, "outcast": True}, M.ASIDE, "none of this cluster"),
        # what the data themselves name counts more than what is remembered: an older copy was put back
        ({"kept": KEPT, "living": ALIVE, "written": (CLUSTER, 0x77)}, M.ASIDE, "member 77 was removed"),
        ({"living": ALIVE, "written": (0xC0, MINE)}, M.ASIDE, "cluster c0, the one that lives is c1"),
        # it has joined again, and was never ready since
        ({"kept": replace(KEPT, member=0x77), "living": ALIVE, "written": (CLUSTER, MINE)}, M.START, ""),
        ({"kept": Kept(CLUSTER, 0x77, "old"), "living": ALIVE, "written": (CLUSTER, MINE)}, M.START, ""),
        ({"kept": replace(KEPT, store="old"), "living": ALIVE, "written": (CLUSTER, MINE)}, M.ASIDE, "store old"),
        # ids follow from the cluster file: only the store's uuid tells a cluster that was begun again
        ({"kept": KEPT, "living": ALIVE, "written": (CLUSTER, MINE), "outcast": True}, M.START, ""),
        ({"living": ALIVE, "written": (CLUSTER, MINE), "outcast": True}, M.ASIDE, "none of this cluster"),
        # nobody to join
        ({"kept": KEPT, "outcast": True}, M.WAIT, "waits for a quorum of n1, n2"),
    ],
)
def test_data_that_are_there_are_used_unless_they_are_useless(
    facts: dict[str, Any], move: MemberMove, words: str
) -> None:
    for heard in itertools.product((SILENT, FRESH, FORMED), repeat=2):
        found = step(WHOLE, heard, **facts)
        assert found.move is move
        assert words in found.cause.text


def test_parts_of_data_are_kept_aside() -> None:
    for kept, living in itertools.product((None, KEPT), (None, ALIVE)):
        assert step(Data.PARTS, kept=kept, living=living).move is M.ASIDE


@pytest.mark.parametrize(
    ("data", "facts", "word"),
    [
        (NONE, {}, Word.FRESH),
        (NONE, {"kept": KEPT}, Word.KNOWS),
        (NONE, {"kept": Kept()}, Word.KNOWS),
        (NONE, {"kept": KEPT, "heard": (FORMED, SILENT)}, Word.KNOWS),
        (WHOLE, {"outcast": True}, Word.KNOWS),
        # a rumour that two nodes pass on to each other would never end
        (NONE, {"heard": (FORMED, SILENT)}, None),
        (NONE, {"living": replace(ALIVE, store="")}, None),
    ],
)
def test_what_a_node_says_while_it_waits(data: Data, facts: dict[str, Any], word: Word | None) -> None:
    assert members.word(seen(data, **facts)) is word


def test_the_list_of_a_join() -> None:
    stale = Listed(0xAB, "n1", ("http://10.9.9.9:2380",), True)
    found = members.initial_cluster(seen(NONE), (*OTHERS, listed(0, started=False), stale))
    urls = f"n1={URLS['n1']},n2={URLS['n2']},n0={URLS['n0']},ab=http://10.9.9.9:2380"
    assert found == urls


# what others may do while a member is away


def test_a_member_whose_cluster_serves_is_not_waited_for() -> None:
    etcd = view("etcd", State.STARTING)
    three = replace(etcd, spec=replace(etcd.spec, replicas=3))
    worker = view("worker", State.STOPPED)
    for c, available, lacks in (
        (etcd, True, ["etcd (starting)"]),
        (three, True, []),
        (three, False, ["etcd (starting)", "store (unavailable)"]),
    ):
        s = snapshot(c, worker, store_available=available)
        assert component.missing(s.components["worker"], s) == lacks


QUORUM = CheckSpec("quorum", "etcd-quorum", 1.0, 3.0, gate=True, act=False)


@pytest.mark.parametrize(
    ("state", "result", "failures", "stops"),
    [
        (State.STARTING, fail("of cluster a, while n0, n1 are of cluster b", strangers=2.0), 3, True),
        (State.READY, fail("of cluster a, while n0, n1 are of cluster b", strangers=2.0), 3, True),
        (State.READY, fail("of cluster a, while n0, n1 are of cluster b", strangers=2.0), 1, False),
        (State.READY, fail("waits for n1, n2: no quorum", waits=1.0), 99, False),
        (State.READY, ok("2 of 3 members are there, not n2"), 0, False),
    ],
)
def test_only_strangers_end_a_member(state: State, result: Result, failures: int, stops: bool) -> None:
    failing = failures >= QUORUM.failures
    tally = Tally(result, failures=failures, failing=failing, passed=result.verdict is Verdict.OK)
    etcd = view("etcd", state, checks={"quorum": tally})
    etcd = replace(etcd, spec=replace(etcd.spec, checks=(*etcd.spec.checks, QUORUM), replicas=3))
    s = snapshot(etcd)
    action = component.decide(s.components["etcd"], s)
    assert (action is not None and action.move is Move.STOP) is stops
    if action is not None and stops:
        assert (action.cause.reason, action.cause.fault) == (Reason.MEMBER, True)
