"""The status as JSON: what people and scripts read of a snapshot."""

import json
from dataclasses import replace

import pytest

from tests.api.fake import BAD, START, snapshot, view
from yrnode.api.status import status
from yrnode.cli.status import text
from yrnode.model.board import Board, Intent, Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Member, Phase, Stage
from yrnode.model.identity import Identity
from yrnode.model.snapshot import Absence, Failure
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally

ME = Identity("n0", "lab", "9.9.9", 1_000_000_000.0)
KILLED = Cause(Reason.EXITED, "killed by signal 9", "", "worker")
OPERATOR = Cause(Reason.OPERATOR, "stopped by an operator", "uid 0")


def told(s, now=1000.0, wall=1_000_003_600.5):
    found = status(s, ME, now, wall)
    return json.loads(json.dumps(found))


def test_contract_keys():
    found = told(snapshot())
    assert set(found) >= {"node", "cluster", "version", "ready", "store", "components", "groups", "peers"}
    assert found["store"] == {
        "available": True,
        "since": "2001-09-09T02:45:40.500+00:00",
        "refuses_writes": None,
        "frozen": [],
        "frozen_why": "",
        "frozen_since": None,
    }
    etcd = found["components"]["etcd"]
    assert set(etcd) >= {"plane", "state", "pid", "instance", "generation", "since", "restarts", "reason", "checks"}
    assert (etcd["plane"], etcd["state"], etcd["pid"], etcd["instance"]) == ("store", "ready", 11, "e1")
    assert etcd["since"] == "2001-09-09T02:45:00.500+00:00"
    health = etcd["checks"]["health"]
    assert (health["verdict"], health["evidence"], health["age_s"], health["took_s"]) == ("ok", "200", 10.0, 0.25)
    group = found["groups"]["serve"]
    assert set(group) >= {"generation", "stage", "phases", "cause", "waiting_for"}
    assert (group["generation"], group["stage"], group["phases"], group["waiting_for"]) == (
        1,
        "go",
        {"n0": "ready"},
        [],
    )
    assert found["ready"] is True
    assert found["reasons"] == []
    assert found["peers"] == {}


def test_ages_grow_while_the_snapshot_does_not():
    found = told(snapshot(), now=1005.0)
    assert found["components"]["etcd"]["checks"]["health"]["age_s"] == 15.0
    assert found["components"]["etcd"]["since"] == "2001-09-09T02:44:55.500+00:00"


def test_a_check_that_never_ran_has_no_age():
    found = told(snapshot(view("etcd", Plane.STORE, State.STARTING, checks={})))
    check = found["components"]["etcd"]["checks"]["health"]
    assert (check["verdict"], check["evidence"], check["age_s"]) == ("unknown", "not run yet", None)


GONE = Cause(Reason.GONE, "nothing of the instance is left")
RESTART = Cause(Reason.OPERATOR, "restart worker by uid 0")
WAIT = Cause(Reason.EXITED, "killed by signal 9; restart 1 of 5, in 0.0 s", "", "worker")


@pytest.mark.parametrize(
    ("component", "more", "reason"),
    [
        (view("worker", Plane.CACHE, State.BACKOFF, cause=WAIT), {}, f"exited: {WAIT.text}"),
        (view("worker", Plane.CACHE, State.READY, death=KILLED), {}, "exited: killed by signal 9"),
        (
            view("worker", Plane.CACHE, State.STARTING, cause=START, checks={"health": Tally()}),
            {},
            "first start; not yet proven: health: not run yet",
        ),
        (view("worker", Plane.CACHE, State.UNHEALTHY, cause=Cause(Reason.CHECK, "check health fails", "HTTP 503")),
         {}, "check health fails (HTTP 503)"),
        (
            view("worker", Plane.CACHE, State.STOPPED, cause=None),
            {"store_available": False},
            "waits for store (unavailable)",
        ),
        (
            view("worker", Plane.CACHE, State.CLEANING, blocked=Cause(Reason.RESIDUE, "port 1 is taken", "pid 7")),
            {},
            "residue: port 1 is taken (pid 7)",
        ),
        (
            view("worker", Plane.CACHE, State.STOPPED, cause=GONE, leaving=RESTART, death=KILLED),
            {"store_available": False},
            "operator: restart worker by uid 0; waits for store (unavailable)",
        ),
        (
            view("worker", Plane.CACHE, State.STOPPING, cause=RESTART, death=KILLED),
            {},
            "operator: restart worker by uid 0",
        ),
        (
            view("worker", Plane.CACHE, State.FAILED, cause=Cause(Reason.CONFIGURATION, "not retried: bad flag")),
            {},
            "configuration: not retried: bad flag",
        ),
    ],
)  # fmt: skip
def test_reason_is_the_current_cause_in_words(component, more, reason):
    found = told(snapshot(component, **more))
    assert found["components"]["worker"]["reason"] == reason
    assert found["ready"] is False
    assert any(line.startswith("worker is ") and reason in line for line in found["reasons"])


def test_last_failure_stays_after_the_recovery():
    history = (Failure(950.0, 3.0, Cause(Reason.EXITED, "killed by signal 9", "wait status 9")),)
    found = told(snapshot(view("worker", Plane.CACHE, history=history, restarts=1, ready_seconds=1.23456)))
    worker = found["components"]["worker"]
    assert worker["last_failure"] == {
        "at": "2001-09-09T02:45:50.500+00:00",
        "reason": "exited",
        "cause": "killed by signal 9",
        "evidence": "wait status 9",
    }
    assert (worker["restarts"], worker["ready_seconds"], worker["reason"]) == (1, 1.235, "proven by health")
    assert found["ready"] is True


def test_what_an_operator_stopped_does_not_count():
    ended = {"cause": GONE, "leaving": OPERATOR, "death": KILLED}
    router = view("router", Plane.ROUTER, State.STOPPED, wanted=False, unwanted=OPERATOR, **ended)
    found = told(snapshot(router))
    assert found["ready"] is True
    assert found["components"]["router"]["reason"] == "operator: stopped by an operator (uid 0)"
    assert found["components"]["router"]["wanted"] is False


def test_a_node_with_nothing_wanted_serves_nothing():
    s = snapshot()
    stopped = {n: replace(c, wanted=False, state=State.STOPPED) for n, c in s.components.items()}
    groups = {n: replace(g, wanted=False) for n, g in s.groups.items()}
    found = told(replace(s, components=stopped, groups=groups))
    assert found["ready"] is False
    assert found["reasons"] == ["no group is wanted: an operator has stopped what serves"]
    assert found["groups"]["serve"]["phases"] == {"n0": "held"}
    assert found["groups"]["serve"]["waiting_for"] == ["an operator"]


def test_a_closing_node_is_not_ready():
    found = told(snapshot(closing=True))
    assert (found["ready"], found["reasons"]) == (False, ["yrnode is shutting down"])


def test_a_group_says_whom_it_waits_for():
    dead = Cause(Reason.EXITED, "exit code 1", "EngineCore died", "rank/serve/1")
    ranks = (
        view("rank/serve/0", Plane.ENGINE, State.CLEANING, cleaned=True, generation=1),
        view("rank/serve/1", Plane.ENGINE, State.STOPPING, generation=1),
        view("worker", Plane.CACHE, State.STARTING, checks={"health": BAD}),
    )
    group = told(snapshot(*ranks, record=GroupRecord(2, Stage.STOP, dead, 1, 3.25)))["groups"]["serve"]
    assert group["generation"] == 2
    assert group["stage"] == "stop"
    assert group["phases"] == {"n0": "stopping"}
    assert group["cause"] == "rank/serve/1: exited: exit code 1 (EngineCore died)"
    assert group["waiting_for"] == ["backoff (3.2 s)", "worker (starting)", "rank/serve/1 (stopping)"]


def test_other_nodes_and_what_differs_there():
    board = Board(
        9,
        "uuid",
        members={
            "serve": {"n1": Member(1, Phase.READY), "n2": Member(1, Phase.STARTING), "n3": Member(0, Phase.CLEAN)}
        },
        nodes={
            "n0": Peer("a", version="1.0", digests={"serve": "x"}),
            "n1": Peer("b", version="1.0", digests={"serve": "x"}),
            "n2": Peer("c", version="1.1", digests={"serve": "y"}, api="10.0.0.2:8470"),
        },
    )
    s = snapshot(board=board, absent={"n3": Absence(990.0)})
    nodes = ("n0", "n1", "n2", "n3")
    s = replace(s, groups={"serve": replace(s.groups["serve"], nodes=nodes)})
    found = told(s)
    assert found["groups"]["serve"]["phases"] == {"n0": "ready", "n1": "ready", "n2": "starting", "n3": "unknown"}
    assert found["groups"]["serve"]["waiting_for"] == ["n2 (starting)", "n3 (unknown)"]
    peers = found["peers"]
    assert [(n, p["up"]) for n, p in peers.items()] == [("n1", True), ("n2", True), ("n3", False)]
    assert peers["n1"]["differs"] == []
    assert peers["n2"]["differs"] == ["the cluster file's group serve", "version 1.1 instead of 1.0"]
    assert peers["n3"]["absent_since"].startswith("20")
    # nobody knows while the store is away
    assert [p["up"] for p in told(replace(s, fresh=False))["peers"].values()] == [None, None, None]


def test_a_failed_group_waits_for_an_operator():
    record = GroupRecord(3, Stage.FAILED, Cause(Reason.CONFIGURATION, "bad flag", "rc 2", "rank/serve/0"))
    group = told(snapshot(record=record))["groups"]["serve"]
    assert group["waiting_for"] == ["an operator: yrnode restart serve"]


def test_what_operators_keep_from_running_is_said():
    said = {
        "all": Intent(3, paused=True, by="n1", why="pause all by root: new switch", at=1_000_003_000.0),
        "n2": Intent(5, run=False, by="n2", why="stop n2 by root", at=1_000_000_000.0),
        "serve": Intent(9, by="n0", why="start serve by root"),
    }
    found = told(replace(snapshot(), intents=said))
    assert list(found["intents"]) == ["all", "n2"]
    assert found["intents"]["all"]["paused"]
    lines = text(found)
    assert "  all PAUSED (nothing heals by itself) for 10m0s, from n1: pause all by root: new switch" in lines
    assert [x for x in lines if x.startswith("  n2 kept stopped for 1h0m, from n2")]


def test_a_store_that_is_away_is_told_with_what_waits_for_it():
    dead = view("rank/serve/0", Plane.ENGINE, State.READY, generation=1, death=replace(KILLED, component=""))
    s = snapshot(dead, view("worker", Plane.CACHE), store_available=False, store_since=950.0, fresh=False)
    found = told(s)
    assert found["store"]["frozen_why"] == "the store does not answer"
    assert found["store"]["frozen_since"] == found["store"]["since"] == "2001-09-09T02:45:50.500+00:00"
    lines = text(found)
    at = lines.index("  FROZEN for 50s: the store does not answer")
    assert lines[at + 1] == (
        "    serve: its restart waits, what is dead is stopped and cleaned here: killed by signal 9"
    )
    assert "    a pause, a stop or a restart that is said on another node is not heard here" in lines
    assert not any("FROZEN" in line for line in text(told(snapshot())))
