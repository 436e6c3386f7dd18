"""When a component hangs: two witnesses, never one; and what each of them may be mistaken for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.build import DEATH, RANKS, serve, snapshot, view
from tests.policy.build import record as group_record
from yrnode.model.cause import Reason
from yrnode.model.group import GroupMove
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.spec import CheckSpec
from yrnode.model.state import Move, State
from yrnode.model.verdict import Result, Tally, Verdict, fail, ok, unknown
from yrnode.policy import component, group
from yrnode.policy.hang import CACHE_SETTLED_S, NO_CANARY_S, hang

CHECKS = {
    "etcd": ("process", "read"),
    "worker": ("process", "liveness", "kv"),
    "rank": ("process", "health", "engine", "progress", "canary"),
    "router": ("process", "health"),
}
GOOD = Tally(ok("fine"), successes=1, passed=True)
T = fail("frozen: core (pid 9, state T) for 3 s")
STALE = fail("liveness has not changed for 3.2 s", stale_s=3.2)
FULL = fail("liveness has not changed for 3.2 s: no space left")
LATE = fail("no answer within 2 s")
NO_CPU = ok("no CPU time for 12 s", no_cpu=1)
REFUSED = unknown("canary not authorised", proves=True, refused=1)


def missed(n: int) -> Result:
    return fail("canary: no token within 10 s", missed=n)


def still(seconds: float, limit_s: float = 180.0) -> Result:
    return fail(f"1 in flight, nothing has moved for {seconds:g} s", still_s=seconds, limit_s=limit_s)


def tally(result: Result, failing: bool | None = None) -> Tally:
    bad = result.verdict is Verdict.FAIL
    return replace(GOOD, result=result, failures=int(bad), failing=bad if failing is None else failing)


def sick(
    name: str, observe: tuple[str, ...] = (), argv: tuple[str, ...] = ("vllm",), **results: Any
) -> ComponentView:
    """A component whose checks said what is given, each beyond its threshold; the others are in order."""
    c = view(name)
    names = CHECKS[c.spec.kind]
    specs = tuple(CheckSpec(n, n, 1.0, 1.0, witness=True, act=n not in observe) for n in names)
    tallies = {n: GOOD for n in names} | {k: v if isinstance(v, Tally) else tally(v) for k, v in results.items()}
    facts = {"spec": replace(c.spec, checks=specs, argv=argv), "checks": tallies}
    return replace(c, **facts)  # type: ignore[arg-type]


def judged(c: ComponentView, *others: ComponentView, **facts: Any) -> str | None:
    s = snapshot(*[sick(n) for n in RANKS if n != c.name], c, *others, **facts)
    found = hang(s.components[c.name], s)
    if found is None:
        return None
    assert (found.reason, found.component) == (Reason.HANG, c.name)
    return f"{found.text} [{found.evidence}]"


PAIRS: list[tuple[str, dict[str, Any], bool]] = [
    ("etcd", {"process": T}, False),
    ("etcd", {"read": LATE}, False),
    ("etcd", {"process": T, "read": LATE}, True),
    ("etcd", {"process": T, "read": tally(LATE, failing=False)}, True),
    ("etcd", {"process": tally(T, failing=False), "read": LATE}, False),
    ("etcd", {"process": T, "read": unknown("this daemon could not ask")}, False),
    ("worker", {"liveness": STALE}, False),
    ("worker", {"process": T}, False),
    ("worker", {"liveness": STALE, "process": T}, True),
    ("worker", {"liveness": STALE, "kv": tally(LATE, failing=False)}, True),
    ("worker", {"liveness": FULL, "kv": LATE, "process": T}, False),
    ("worker", {"liveness": unknown("cannot be read"), "kv": LATE}, False),
    ("rank/serve/0", {"process": T}, False),
    ("rank/serve/0", {"process": T, "health": LATE}, True),
    ("router", {"process": T, "health": LATE}, True),
]


@pytest.mark.parametrize(("name", "results", "hangs"), PAIRS)
def test_pairs(name: str, results: dict[str, Any], hangs: bool) -> None:
    assert (judged(sick(name, **results)) is not None) is hangs


@pytest.mark.parametrize("observed", ["process", "liveness"])
def test_a_witness_that_only_observes_is_none(observed: str) -> None:
    assert judged(sick("worker", observe=(observed,), liveness=STALE, process=T)) is None


ENGINE: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    # frozen: at once, with the first canary that is late
    ({"engine": T}, None),
    ({"canary": missed(1)}, None),
    ({"engine": T, "canary": missed(1)}, "frozen"),
    ({"engine": unknown("not known"), "canary": missed(9), "progress": still(170)}, None),
    # no CPU time: two late canaries, and something that does not move
    ({"engine": NO_CPU, "canary": missed(2), "progress": still(20)}, None),  # the other rank computes
    # working processes: only after the limit
    ({"canary": missed(2), "progress": still(20)}, None),
    ({"canary": missed(9), "progress": still(179)}, None),
    ({"canary": missed(9), "progress": still(180)}, "no progress for 180 s"),
    ({"canary": missed(9), "progress": still(300, limit_s=360.0)}, None),
    ({"canary": missed(1), "progress": still(300)}, None),
    # the canary is answered: a request is stuck, not the rank
    ({"progress": still(600)}, None),
    ({"engine": T, "progress": still(600)}, None),
    # late canaries of a rank that moves are a busy rank
    ({"canary": missed(9), "progress": ok("9 in flight, moving")}, None),
    ({"canary": missed(9), "progress": unknown("no series")}, None),
    # a wrong answer is no hang
    ({"canary": fail("completion: HTTP 500"), "progress": still(600)}, None),
    # a server that refuses canaries
    ({"canary": REFUSED}, None),
    ({"canary": REFUSED, "engine": T, "progress": still(NO_CANARY_S - 1)}, None),
    ({"canary": REFUSED, "engine": T, "progress": still(NO_CANARY_S)}, "frozen"),
    ({"canary": REFUSED, "progress": still(600)}, None),
]


@pytest.mark.parametrize(("results", "words"), ENGINE)
def test_an_engine(results: dict[str, Any], words: str | None) -> None:
    found = judged(sick(RANKS[0], **results))
    assert (found is None) if words is None else (found is not None and words in found)


def test_no_cpu_time_counts_when_no_rank_of_the_group_uses_any() -> None:
    stands = sick(RANKS[0], engine=NO_CPU, canary=missed(2), progress=still(20))
    found = judged(stands, sick(RANKS[1], engine=NO_CPU))
    assert found is not None
    assert "use no CPU time" in found


def test_the_evidence_names_the_rank_that_is_stuck() -> None:
    waits = sick(RANKS[0], canary=missed(9), progress=still(200))
    found = judged(waits, sick(RANKS[1], engine=T))
    assert found is not None
    assert f"{RANKS[1]}: {T.evidence}" in found


WAITS = {"canary": missed(9), "progress": still(200)}
EXTERNAL = ("vllm", "--kv-transfer-config", "{}")


@pytest.mark.parametrize(
    ("worker", "excused"),
    [
        (sick("worker"), False),
        (sick("worker", kv=tally(LATE, failing=False)), True),
        (sick("worker", liveness=STALE), True),
        (replace(sick("worker"), state=State.STARTING), True),
        (replace(sick("worker"), ready_at=100.0 - CACHE_SETTLED_S + 1), True),
        (replace(sick("worker"), ready_at=100.0 - CACHE_SETTLED_S), False),
    ],
)
def test_a_rank_that_waits_for_its_cache(worker: ComponentView, excused: bool) -> None:
    assert (judged(sick(RANKS[0], argv=EXTERNAL, **WAITS), worker) is None) is excused
    assert judged(sick(RANKS[0], **WAITS), worker) is not None, "it has no external cache"
    frozen = sick(RANKS[0], argv=EXTERNAL, engine=T, canary=missed(1))
    assert judged(frozen, worker) is not None, "waiting for a cache stops no process"


def stuck(several_s: float, stuck_s: float = 0.0) -> Result:
    facts = {"several_s": several_s, "stuck_s": stuck_s, "limit_s": 180.0}
    return fail("3 in flight: requests are stuck", **facts) if stuck_s else ok("9 in flight, some move", **facts)


def lost(n: int) -> Result:
    return fail("requests with external hits do not finish, short ones do; the last that did: 14:02:01 UTC", lost=n)


FRESH = ok("a prompt of several blocks is answered, 304 tokens of it from the external cache")
LINK: list[tuple[dict[str, Any], str | None]] = [
    # prompts from the cache are lost, and nobody waits: said, and no more
    ({"cache": lost(9)}, None),
    ({"cache": lost(9), "progress": ok("1 in flight, moving")}, None),
    # one request that is stuck, or several for less than the limit
    ({"cache": lost(9), "progress": stuck(0.0, stuck_s=600)}, None),
    ({"cache": lost(9), "progress": stuck(179, stuck_s=179)}, None),
    # several beyond it, with prompts that are lost or where nothing else moves
    ({"cache": lost(3), "progress": stuck(180)}, "requests with external hits do not finish for 180 s"),
    ({"cache": lost(3), "progress": stuck(180, stuck_s=180)}, "requests with external hits do not finish"),
    ({"cache": FRESH, "progress": stuck(200, stuck_s=180)}, "several requests do not finish for 200 s"),
    # a busy rank always has several that are not finished
    ({"cache": FRESH, "progress": stuck(900)}, None),
    ({"cache": lost(2), "progress": stuck(900)}, None),
    ({"cache": FRESH, "progress": stuck(900, stuck_s=179)}, None),
    # short ones are not answered: that is for another rule
    ({"cache": lost(9), "progress": stuck(900, stuck_s=900), "canary": missed(1)}, None),
    ({"cache": lost(9), "progress": stuck(900, stuck_s=900), "canary": REFUSED}, None),
    ({"cache": unknown("neither is answered"), "progress": stuck(900)}, None),
]


def linked(name: str, **results: Any) -> ComponentView:
    c = sick(name, argv=EXTERNAL, **{k: v for k, v in results.items() if k != "cache"})
    spec = replace(c.spec, checks=(*c.spec.checks, CheckSpec("cache", "retrieval", 1.0, 1.0, witness=True)))
    return replace(c, spec=spec, checks={**c.checks, "cache": tally(results.get("cache", FRESH))})


@pytest.mark.parametrize(("results", "words"), LINK)
def test_a_link_to_the_cache(results: dict[str, Any], words: str | None) -> None:
    found = judged(linked(RANKS[0], **results), linked(RANKS[1]))
    assert (found is None) if words is None else (found is not None and words in found)
    assert judged(sick(RANKS[0], argv=EXTERNAL, **results)) is None, "a rank that has no such check"


DEAD = {"cache": lost(3), "progress": stuck(200)}


def test_whose_link_it_is() -> None:
    one = judged(linked(RANKS[0], **DEAD), linked(RANKS[1]))
    assert one is not None
    assert "short ones do: the rank's link to the cache is dead [cache: requests with external hits" in one
    g = serve(group_record())
    both = group.decide(g, snapshot(linked(RANKS[0], **DEAD), linked(RANKS[1], cache=lost(1)), group=g))
    assert both is not None
    assert "short ones do: on every rank of this node, so its worker is to blame" in both.cause.text
    assert (both.move, both.cause.component) == (GroupMove.BUMP, "worker")
    alone = snapshot(linked(RANKS[0], **DEAD))
    del alone.components[RANKS[1]]  # type: ignore[attr-defined]
    found = hang(alone.components[RANKS[0]], alone)
    assert found is not None
    assert "the rank's link" in found.text


@pytest.mark.parametrize(
    "worker",
    [
        sick("worker", kv=tally(LATE, failing=False)),
        sick("worker", liveness=STALE),
        replace(sick("worker"), state=State.STOPPING),
        replace(sick("worker"), ready_at=100.0 - CACHE_SETTLED_S + 1),
    ],
)
def test_a_sick_worker_comes_first(worker: ComponentView) -> None:
    assert judged(linked(RANKS[0], **DEAD), worker) is None


def test_a_dead_link_restarts_the_group_and_never_the_worker() -> None:
    g = serve(group_record())
    s = snapshot(linked(RANKS[0]), linked(RANKS[1], **DEAD), sick("worker"), group=g)
    action = group.decide(g, s)
    assert action is not None
    assert (action.move, action.cause.reason, action.cause.component) == (GroupMove.BUMP, Reason.HANG, RANKS[1])
    assert component.decide(s.components["worker"], s) is None


def test_a_hang_restarts_its_group_once() -> None:
    g = serve(group_record())
    s = snapshot(sick(RANKS[0]), sick(RANKS[1], engine=T, canary=missed(1)), group=g)
    action = group.decide(g, s)
    assert action is not None
    assert (action.move, action.cause.reason, action.cause.component) == (GroupMove.BUMP, Reason.HANG, RANKS[1])


def decided(c: ComponentView, **facts: Any) -> Move | None:
    s: Snapshot = snapshot(c, **facts)
    action = component.decide(s.components[c.name], s)
    return None if action is None else action.move  # type: ignore[return-value]


def test_a_frozen_worker_waits_for_its_store() -> None:
    frozen = sick("worker", liveness=STALE, process=T)
    assert decided(frozen) is Move.STOP
    assert decided(frozen, store_available=False) is Move.UNHEALTHY
    assert decided(replace(frozen, state=State.UNHEALTHY), store_available=False) is None


def test_a_component_that_starts_is_judged_by_its_deadline() -> None:
    starting = replace(sick("worker", liveness=STALE, process=T), state=State.STARTING, deadline=1000.0)
    assert decided(starting) is not Move.STOP


RESULTS = st.sampled_from(
    [ok("x"), unknown("x"), LATE, T, STALE, missed(1), missed(3), still(20), still(500), NO_CPU]
)


@given(st.data())
def test_one_witness_alone_never_hangs(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["etcd", "worker", RANKS[0], "router"]))
    kind = name.split("/", maxsplit=1)[0]
    check = data.draw(st.sampled_from(CHECKS[kind]))
    assert judged(sick(name, **{check: data.draw(RESULTS)})) is None


@given(st.dictionaries(st.sampled_from(CHECKS["rank"][2:]), RESULTS))
def test_a_rank_whose_canary_is_not_late_and_not_refused_never_hangs(results: dict[str, Any]) -> None:
    results["canary"] = ok("completion: 1 token")
    assert judged(sick(RANKS[0], **results)) is None


def test_a_dead_rank_is_called_dead_also_where_nothing_may_be_done_about_it() -> None:
    """Its checks fail too, and together; that is no hang."""
    dead = replace(sick(RANKS[0], process=T, health=LATE), death=DEATH)
    assert hang(dead, snapshot(dead)) is not None
    assert component.complaint(dead, snapshot(dead)) == DEATH
