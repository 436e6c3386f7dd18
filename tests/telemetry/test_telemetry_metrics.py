"""Metrics: the contract's names and labels, with the values that the snapshot has."""

import asyncio
import re
import subprocess
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.fake import BAD, snapshot, view
from tests.support.prometheus import PROMTOOL, needs_promtool
from yrnode.model.board import Board, Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupRecord, Member, Phase, Stage
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally
from yrnode.telemetry.metrics import Metrics

KILLED = Cause(Reason.EXITED, "killed by signal 9")


@pytest.fixture
def metrics():
    state = snapshot(
        view("worker", Plane.CACHE, State.UNHEALTHY, checks={"health": BAD}),
        view("router", Plane.ROUTER, State.STARTING, checks={"health": Tally()}),
        view("etcd", Plane.STORE, death=KILLED),
        record=GroupRecord(7, Stage.STOP, KILLED),
        node={"log_dir": BAD},
        board=Board(
            nodes={"n0": Peer("i0", version="1", digests={"serve": "x"}), "n1": Peer("i1", version="2", protocol=0)},
            members={
                "serve": {"n0": Member(7, Phase.CLEAN), "n1": Member(6, Phase.CLEAN), "n2": Member(7, Phase.HELD)}
            },
        ),
    )
    serve = replace(state.groups["serve"], nodes=("n0", "n1", "n2"))
    state = replace(state, groups={"serve": serve})
    found = Metrics("n0", "1.2.3", lambda: state)
    found.restarted("worker", "cache", Reason.EXITED)
    found.removed("worker", "cache", "file", 2)
    found.removed("worker", "cache", "file", 1)
    found.observe_loop(0.002)
    recover(found)
    return found


def recover(metrics):
    """A worker that died at 957.997, was ended at 958 and is ready at 1000."""
    dying = view(
        "worker",
        Plane.CACHE,
        State.STOPPING,
        since=958.0,
        died_at=957.997,
        death=KILLED,
        leaving=KILLED,
        instance="a",
    )
    for one in (dying, view("worker", Plane.CACHE, instance="b")):
        metrics.follow(replace(snapshot(one), now=999.997))


def samples(metrics):
    families = text_string_to_metric_families(metrics.text().decode())
    return [s for family in families for s in family.samples]


def value(metrics, name, **labels):
    found = [
        s.value
        for s in samples(metrics)
        if s.name == f"yrnode_{name}" and all(s.labels.get(k) == v for k, v in {"node": "n0", **labels}.items())
    ]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("component_up", {"component": "rank/serve/0", "plane": "engine"}, 1),
        ("component_up", {"component": "worker", "plane": "cache"}, 0),
        ("component_up", {"component": "etcd", "plane": "store"}, 0),
        ("component_state", {"component": "worker", "plane": "cache", "state": "unhealthy"}, 1),
        ("component_state", {"component": "worker", "plane": "cache", "state": "ready"}, 0),
        ("component_restarts_total", {"component": "worker", "plane": "cache", "reason": "exited"}, 1),
        ("component_restarts_total", {"component": "worker", "plane": "cache", "reason": "check"}, 0),
        ("component_restarts_total", {"component": "etcd", "plane": "store", "reason": "exited"}, 0),
        ("check_verdict", {"component": "rank/serve/0", "check": "health"}, 1),
        ("check_verdict", {"component": "worker", "check": "health"}, 0),
        ("check_verdict", {"component": "router", "check": "health"}, -1),
        ("check_duration_seconds", {"component": "etcd", "plane": "store", "check": "health"}, 0.25),
        ("group_generation", {"group": "serve"}, 7),
        ("group_stage", {"group": "serve", "stage": "stop"}, 1),
        ("group_stage", {"group": "serve", "stage": "go"}, 0),
        ("residue_removed_total", {"component": "worker", "plane": "cache", "kind": "file"}, 3),
        ("component_wanted", {"component": "worker", "plane": "cache"}, 1),
        ("component_cause", {"component": "etcd", "plane": "store", "reason": "exited"}, 1),
        ("component_cause", {"component": "router", "plane": "router", "reason": "proven"}, 1),
        ("node_ready", {}, 0),
        ("node_check_verdict", {"check": "log_dir"}, 0),
        ("peer_up", {"peer": "n1"}, 1),
        ("peer_up", {"peer": "n2"}, 0),
        ("peer_differs", {"peer": "n1"}, 2),
        ("group_waits_for", {"group": "serve", "peer": "n0"}, 0),
        ("group_waits_for", {"group": "serve", "peer": "n1"}, 1),
        ("group_waits_for", {"group": "serve", "peer": "n2"}, 0),
        ("store_available", {}, 1),
        ("store_refuses_writes", {}, 0),
        ("loop_duration_seconds_count", {}, 1),
        ("loop_duration_seconds_bucket", {"le": "0.001"}, 0),
        ("loop_duration_seconds_bucket", {"le": "0.0025"}, 1),
        ("recovery_seconds_sum", {"group": "", "component": "worker", "plane": "cache", "phase": "ready"}, 42),
        ("recovery_seconds_bucket", {"group": "", "component": "worker", "phase": "seen", "le": "0.01"}, 1),
        ("recovery_seconds_bucket", {"group": "", "component": "worker", "phase": "seen", "le": "+Inf"}, 1),
        ("build_info", {"version": "1.2.3"}, 1),
    ],
)
def test_values(metrics, name, labels, expected):
    assert value(metrics, name, **labels) == expected


def test_every_series_has_the_node_and_one_state_is_on(metrics):
    found = samples(metrics)
    assert all(s.labels["node"] == "n0" and s.name.startswith("yrnode_") for s in found)
    assert [s.name for s in found if "component" in s.labels and not s.labels.get("plane")] == []
    on = [s.labels["component"] for s in found if s.name == "yrnode_component_state" and s.value]
    assert sorted(on) == ["etcd", "rank/serve/0", "router", "worker"]


@pytest.mark.parametrize(("kind", "plane"), [(GroupKind.SERVING, "engine"), (GroupKind.CACHE, "cache")])
def test_a_groups_recovery_has_the_plane_of_its_members(kind, plane):
    found = Metrics("n0", "1", snapshot)
    for n in (1, 2):
        state = snapshot(record=GroupRecord(n, Stage.STOP, KILLED))
        found.follow(replace(state, groups={"serve": replace(state.groups["serve"], kind=kind)}))
    assert value(found, "recovery_seconds_count", group="serve", component="", plane=plane, phase="seen") == 1


def test_names_and_help(metrics):
    text = metrics.text().decode()
    families = list(text_string_to_metric_families(text))
    assert len(families) >= 10
    for family in families:
        assert re.fullmatch(r"yrnode_[a-z]+(_[a-z]+)*", family.name)
        assert len(family.documentation) > 20
        assert not family.name.endswith(("_count", "_sum", "_bucket", "_total", "_created"))
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
    assert "_created" not in text
    assert re.search(r"^# TYPE yrnode_component_restarts_total counter$", text, re.M)


async def test_what_the_daemon_itself_uses_is_counted(metrics, tmp_path):
    def now():
        return [value(metrics, f"daemon_{name}") for name in ("tasks", "open_files", "resident_bytes")]

    tasks, files, resident = now()
    task = asyncio.create_task(asyncio.sleep(60))
    with open(tmp_path / "one", "w"):
        more = now()
    task.cancel()
    assert more[:2] == [tasks + 1, files + 1]
    assert 1e6 < resident < 1e10


def test_two_daemons_in_one_process_do_not_mix(metrics):
    other = Metrics("n1", "1", snapshot)
    assert {s.labels["node"] for s in samples(other)} == {"n1"}


def test_label_values_are_escaped():
    odd = view('a"b\\c\nd', Plane.ROUTER)
    found = Metrics("n0", "1", lambda: snapshot(odd))
    assert value(found, "component_up", component='a"b\\c\nd') == 1


@needs_promtool
def test_promtool_is_content(metrics):
    child = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=metrics.text(), capture_output=True, timeout=20, check=False
    )
    assert (child.returncode, child.stdout, child.stderr) == (0, b"", b"")
