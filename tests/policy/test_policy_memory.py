"""A second worker beside what clients of a dead one still map, and ranks that restart with their worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.build import DEATH, RANKS, record, serve, snapshot, spec, view
from yrnode.model.board import Stored
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupMove, Stage
from yrnode.model.memory import Held, Memory, MemoryNeed
from yrnode.model.snapshot import ComponentView, Failure
from yrnode.model.state import Move, State
from yrnode.policy.memory import LET_GO_S, lacking, shortage
from yrnode.policy.plan import decide

MIB = 1024**2
WHERE = "MemAvailable"
NOW = 100.0
"""The snapshots' own."""
BOTH = frozenset(RANKS)
STRANGER = "pid 7 (python)"


def worker(
    free: int, *held: Held, total: int = 1000, waited: float = LET_GO_S, need: int = 256, **facts: Any
) -> ComponentView:
    """A worker that is being cleaned, with so many MiB free; `held` in MiB too."""
    state = facts.pop("state", State.CLEANING)
    pieces = tuple(replace(h, size=h.size * MIB) for h in held)
    seen = Memory(free * MIB, total * MIB, WHERE, pieces, NOW - waited)
    needs = replace(spec("worker"), memory=MemoryNeed(need * MIB, huge=facts.pop("huge", False)))
    return replace(view("worker", state), **{"spec": needs, "memory": seen, **facts})


def bump(c: ComponentView, *views: ComponentView, **facts: Any) -> Cause | None:
    """What the serving group is bumped for."""
    s = snapshot(c, *views, **facts)
    return next((a.cause for a in decide(s) if a.target == "serve" and a.move is GroupMove.BUMP), None)


@pytest.mark.parametrize(
    ("c", "names"),
    [
        (worker(200, Held(60, BOTH)), "rank/serve/0, rank/serve/1"),
        (worker(200, Held(60, frozenset({RANKS[1]}))), "rank/serve/1"),
        (worker(0, Held(30, frozenset({RANKS[0]})), Held(226, BOTH)), "rank/serve/0, rank/serve/1"),
        # what the kernel could not tell is counted by its span, and there is never more than the worker had
        (worker(0, Held(9999, BOTH)), "rank/serve/0, rank/serve/1"),
        # a stranger's piece is not needed
        (worker(200, Held(60, BOTH), Held(10, frozenset({STRANGER}))), "rank/serve/0, rank/serve/1"),
    ],
)
def test_ranks_restart_when_only_what_they_map_is_in_the_way(c: ComponentView, names: str) -> None:
    cause = bump(c)
    assert cause is not None
    assert (cause.reason, cause.component) == (Reason.MEMORY, "worker")
    assert cause.text == f"no memory for a second worker beside what {names} still map"
    assert "MiB mapped" in cause.evidence
    assert "of 256 MiB free, MemAvailable" in cause.evidence


@pytest.mark.parametrize(
    "c",
    [
        pytest.param(worker(256, Held(200, BOTH)), id="it fits"),
        pytest.param(worker(200, Held(20, BOTH)), id="it would not fit without either"),
        pytest.param(worker(200), id="nobody maps any"),
        pytest.param(worker(200, Held(60, BOTH), waited=LET_GO_S - 0.1), id="they may yet let go"),
        pytest.param(worker(200, Held(60, BOTH | {STRANGER})), id="a stranger maps it too"),
        pytest.param(worker(200, Held(60, frozenset({STRANGER}))), id="only a stranger maps it"),
        pytest.param(worker(200, Held(60, BOTH), state=State.STOPPING), id="it is not gone yet"),
        pytest.param(worker(200, Held(60, BOTH), state=State.READY), id="it runs"),
        pytest.param(worker(200, Held(60, BOTH), memory=None), id="nothing is known"),
    ],
)
def test_ranks_keep_running_in_all_other_cases(c: ComponentView) -> None:
    assert bump(c) is None


def test_without_a_store_it_could_not_start_either() -> None:
    assert bump(worker(200, Held(60, BOTH)), store_available=False) is None
    assert bump(worker(200, Held(60, BOTH)), view("etcd", State.BACKOFF)) is None


def test_only_the_groups_that_map_it_restart() -> None:
    other = replace(serve(record()), name="other", members=("rank/other/0",))
    ranks = replace(view("rank/serve/0"), spec=replace(spec("rank/serve/0"), name="rank/other/0", group="other"))
    cache = replace(serve(record()), name="cache", members=("worker",), kind=GroupKind.CACHE)
    groups = {"serve": serve(record()), "other": other, "cache": cache}
    records = {name: Stored(record(), 7) for name in groups}

    def bumped(c: ComponentView) -> set[str]:
        s = snapshot(c)
        s = replace(s, components={**s.components, ranks.name: ranks}, groups=groups)
        s = replace(s, board=replace(s.board, records=records))
        return {a.target for a in decide(s) if a.move is GroupMove.BUMP}

    assert bumped(worker(200, Held(60, BOTH))) == {"serve"}
    assert bumped(worker(200, Held(60, frozenset({"rank/other/0"})))) == {"other"}
    # both together free enough, neither alone does
    assert bumped(worker(200, Held(30, BOTH), Held(30, frozenset({"rank/other/0"})))) == {"serve", "other"}


def test_it_is_no_fault_of_the_ranks_and_the_worker_does_not_start_meanwhile() -> None:
    c = worker(200, Held(60, BOTH), cleaned=False)
    group = serve(record(fails=2))
    s = snapshot(c, group=group)
    (action,) = decide(s)
    assert action.record is not None
    assert (action.record.fails, action.record.backoff_s, action.record.n) == (2, 0.0, 2)
    # once it fits, the worker starts and the stopped ranks wait for it
    fits = worker(300, cleaned=True, state=State.CLEANING)
    stopped = [view(name, State.STOPPED) for name in RANKS]
    actions = decide(snapshot(fits, *stopped, group=serve(record(Stage.STOP, 2))))
    assert [(a.move, a.target) for a in actions] == [(Move.START, "worker")]


def test_a_ranks_own_fault_comes_first() -> None:
    cause = bump(worker(200, Held(60, BOTH)), view(RANKS[0], death=DEATH))
    assert cause is not None
    assert cause.text == DEATH.text


@pytest.mark.parametrize(
    ("c", "reason", "words"),
    [
        (worker(256), None, ""),
        (worker(10, memory=None), None, ""),
        (
            worker(200, Held(60, BOTH)),
            Reason.MEMORY,
            "not started: no memory for a second worker beside what rank/serve/0, rank/serve/1 still map",
        ),
        (
            worker(200),
            Reason.MEMORY,
            "not started: not enough memory is free: end what takes it, or lower datasystem.shared_memory",
        ),
        (
            worker(200, Held(20, frozenset({STRANGER}))),
            Reason.MEMORY,
            "not started: no memory for a second worker beside what pid 7 (python) still map: "
            "end what takes it, or lower datasystem.shared_memory",
        ),
        (
            worker(200, total=255),
            Reason.CONFIGURATION,
            "datasystem.shared_memory is more than this node has: lower it",
        ),
        (
            worker(0, total=0, huge=True),
            Reason.CONFIGURATION,
            "datasystem.shared_memory is more than this node has: reserve more (vm.nr_hugepages) or lower it",
        ),
    ],
)
def test_what_is_said_of_a_start_that_waits(c: ComponentView, reason: Reason | None, words: str) -> None:
    cause = shortage(c)
    assert (cause.reason if cause else None, cause.text if cause else "") == (reason, words)
    assert (lacking(c) > 0) is (cause is not None)


def restarted(began: int, state: State = State.READY, takes: bool = True, **facts: Any) -> ComponentView:
    return replace(view("worker", state, began=began, **facts), spec=replace(spec("worker"), takes_groups=takes))


@pytest.mark.parametrize("state", [State.READY, State.UNHEALTHY])
def test_ranks_restart_with_their_worker_where_the_file_says_so(state: State) -> None:
    ranks = [view(name, began=50) for name in RANKS]
    assert bump(restarted(49, state), *ranks) is None
    fault = Failure(90.0, 5.0, DEATH)
    cause = bump(restarted(51, state, history=(fault,)), *ranks)
    assert cause == Cause(
        Reason.WORKER,
        "worker has restarted, and datasystem.on_worker_restart is group",
        "the worker's last fault: exited: killed by SIGKILL",
        "worker",
    )
    # one that has begun since does not save the others
    assert bump(restarted(51, state), ranks[0], view(RANKS[1], began=60)) is not None


@pytest.mark.parametrize(
    "c",
    [
        pytest.param(restarted(51, takes=False), id="keep"),
        pytest.param(restarted(51, State.STARTING), id="not ready yet"),
        pytest.param(restarted(51, State.BACKOFF), id="not started yet"),
    ],
)
def test_ranks_keep_running_until_it_is_so(c: ComponentView) -> None:
    assert bump(c, *[view(name, began=50) for name in RANKS]) is None


def test_a_full_disk_at_the_start_is_no_fault_of_a_rank() -> None:
    full = Cause(Reason.RESIDUE, "cannot start vllm: No space left on device (/x)")
    s = snapshot(view(RANKS[0], State.STARTING, death=full), group=serve(record(fails=2)))
    (action,) = [a for a in decide(s) if a.target == "serve"]
    assert action.move is GroupMove.BUMP
    assert action.record is not None
    assert (action.record.fails, action.record.backoff_s) == (2, 1.0)


def test_a_full_disk_at_the_start_is_no_fault_of_a_component() -> None:
    full = Cause(Reason.RESIDUE, "cannot start dscli: No space left on device (/x)")
    (action,) = decide(snapshot(view("worker", State.STARTING, death=full)))
    assert (action.move, action.target, action.cause.fault) == (Move.STOP, "worker", False)
    (action,) = decide(snapshot(view("worker", State.STOPPING, gone=True, leaving=full)))
    assert (action.move, action.delay) == (Move.WAIT, 1.0)
