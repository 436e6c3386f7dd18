"""etcd on three nodes, by real daemons that run nothing else: first starts, lost data, lost quorums."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certs import make_certs
from tests.support.cluster import YrCluster, cluster
from tests.support.etcd import ETCD_34, ETCD_35, post
from tests.support.members import (
    NODES,
    etcd,
    go_down,
    kept,
    listed,
    lose_data,
    only_etcd,
    quorum,
    text,
    told,
    url,
    whole,
)
from tests.support.node import YrNode
from yrnode.model.cause import Reason
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane, State
from yrnode.model.verdict import WAITS, fail, unknown
from yrnode.node import world
from yrnode.policy import component
from yrnode.policy.members import PATIENCE_S

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shared() -> Iterator[YrCluster]:
    with cluster(text(), 3, start=False) as found:
        for node in found.nodes.values():
            only_etcd(node)
        found.start()
        yield found


@pytest.fixture
def trio(shared: YrCluster) -> YrCluster:
    """Three members in order, whatever the test before has done."""
    shared.wait("three members", lambda: whole(shared), 60)
    shared.wait("the record", lambda: all(kept(n) for n in shared.nodes.values()), 30)
    return shared


def waits(c: YrCluster, node: YrNode, *words: str, seconds: float = 30.0) -> str:
    """What it says while it waits."""
    name = node.name
    return str(
        c.wait(f"{name} waits", lambda: all(w in (r := etcd(node).get("reason", "")) for w in words) and r, seconds)
    )


@pytest.mark.parametrize(
    "binary", [pytest.param(ETCD_35, id="3.5"), pytest.param(ETCD_34, id="3.4", marks=pytest.mark.slow)]
)
def test_members_that_start_in_any_order_become_one_cluster(binary: Path) -> None:
    if not binary.exists():
        pytest.skip(f"no {binary}")
    with cluster(text(binary), 3, start=False) as c:
        for node in c.nodes.values():
            only_etcd(node)
        c["n1"].start()
        reason = waits(c, c["n1"], "waits for n0, n2: no quorum", "1 of 3 members are there")
        assert reason.startswith("member:")
        assert c["n1"].component("rank/serve/1")["waiting_for"]
        assert not c["n1"].status()["store"]["available"]
        time.sleep(2)
        assert (etcd(c["n1"])["state"], etcd(c["n1"])["generation"]) == ("cleaning", 0)

        c["n0"].start()
        c.wait("two of three", lambda: all(quorum(c[n]).startswith("2 of 3") for n in ("n0", "n1")), 60)
        assert quorum(c["n0"]) == "2 of 3 members are there, not n2"
        c.wait("the store", lambda: all(c[n].status()["store"]["available"] for n in ("n0", "n1")), 10)

        c["n2"].start()
        c.wait("three of three", lambda: whole(c), 60)
        assert [told(c[n])[-1] for n in NODES] == ["member-new", "member-new", "member-join"]
        assert [(etcd(c[n])["generation"], etcd(c[n])["restarts"]) for n in NODES] == [(1, 0)] * 3
        before = listed(c["n0"])
        assert set(before) == set(NODES)

        c.wait("the record", lambda: kept(c["n2"]), 30)
        go_down(c["n2"])
        lose_data(c["n2"])
        c["n2"].start()
        c.wait("replaced", lambda: whole(c) and told(c["n2"])[-3:], 60)
        assert told(c["n2"])[-3:] == ["member-remove", "member-add", "member-join"]
        after = listed(c["n0"])
        assert {n for n in NODES if after[n] != before[n]} == {"n2"}


@pytest.mark.slow
def test_members_with_tls(tmp_path: Path) -> None:
    """The word of a node that is new, the list and its changes: all of it is said with certificates."""
    certs = make_certs(tmp_path)
    tls = f"tls: {{ca: {certs.ca}, cert: {certs.cert('server')}, key: {certs.key('server')}}}"
    given = text().replace("etcd: {nodes: [n0, n1, n2],", f"etcd: {{nodes: [n0, n1, n2], {tls},")
    given = given.replace("datasystem: {", "datasystem: {args: {etcd_target_name_override: 127.0.0.1}, ")
    with cluster(given, 3, start=False) as c:
        for node in c.nodes.values():
            only_etcd(node)
        c["n1"].start()
        waits(c, c["n1"], "waits for n0, n2: no quorum", "1 of 3 members are there")
        for name in ("n0", "n2"):
            c[name].start()
        c.wait("three of three", lambda: whole(c), 60)
        c.wait("the record", lambda: kept(c["n2"]), 30)
        go_down(c["n2"])
        lose_data(c["n2"])
        c["n2"].start()
        c.wait("replaced", lambda: whole(c), 60)
        assert told(c["n2"])[-3:] == ["member-remove", "member-add", "member-join"]


def test_a_start_that_waits_for_others_has_all_its_time_still() -> None:
    gate = CheckSpec("quorum", "etcd-quorum", 1.0, 3.0, gate=True, act=False)
    spec = ComponentSpec("etcd", "etcd", Plane.STORE, (), {}, Path(), Path(), start_timeout_s=60.0, checks=(gate,))
    w = world.make([spec], 0.0)
    w.update("etcd", state=State.STARTING, instance="i1", deadline=60.0)
    for at, result, deadline in (
        (10.0, fail("no answer"), 60.0),
        (50.0, fail("waits for n1, n2", **{WAITS: 1.0}), 110.0),
        (55.0, unknown("its peer port does not answer"), 110.0),
        (90.0, fail("waits for n1, n2", **{WAITS: 1.0}), 150.0),
    ):
        w.record_result("etcd", "i1", "quorum", result, at)
        assert w.components["etcd"].deadline == deadline
    assert component.fault(w.components["etcd"], w.snapshot(149.0)) is None
    over = component.fault(w.components["etcd"], w.snapshot(151.0))
    assert over is not None
    assert over.reason is Reason.START_TIMEOUT


def test_a_member_that_was_removed_joins_again(trio: YrCluster) -> None:
    before, pids = listed(trio["n0"]), trio.pids("etcd")

    def removed() -> bool:
        try:
            post(url(trio["n0"]), "cluster/member/remove", {"ID": str(before["n1"])})
        except OSError as e:
            # for 5 s after members have found each other
            if "unhealthy cluster" in str(e):
                return False
            raise
        return True

    trio.wait("removed", removed, 30)
    trio.wait("a new entry", lambda: whole(trio) and listed(trio["n0"]).get("n1") not in (None, before["n1"]), 60)
    last = etcd(trio["n1"])["last_failure"]
    assert (last["reason"], last["cause"]) == ("member", "no member of its cluster")
    assert "permanently removed" in last["evidence"]
    assert told(trio["n1"])[-3:] == ["member-aside", "member-add", "member-join"]
    assert (trio["n1"].home / "etcd/member.aside-1/wal").is_dir()
    others = ("n0 etcd", "n2 etcd")
    assert [trio.pids("etcd")[n] for n in others] == [pids[n] for n in others]


def test_a_machine_that_was_set_up_again_begins_no_cluster_beside_the_one_that_sleeps(trio: YrCluster) -> None:
    """The power comes back at the one that remembers nothing first."""
    before = listed(trio["n0"])
    for name in NODES:
        go_down(trio[name])
    shutil.rmtree(trio["n2"].home)
    only_etcd(trio["n2"])
    trio["n2"].start()
    waits(trio, trio["n2"], "waits for n0, n1: no quorum for etcd's first start")
    trio["n0"].start()
    # n0 alone has no quorum: its peer port tells of the cluster all the same
    waits(trio, trio["n2"], "waits for a quorum of n0, n1", "known to n0")
    waits(trio, trio["n0"], "waits for n1, n2: no quorum, 1 of 3 members are there")
    assert not (trio["n2"].home / "etcd/member").exists()
    trio["n1"].start()
    trio.wait("three members", lambda: whole(trio), 60)
    assert told(trio["n2"]).count("member-new") == 0
    after = listed(trio["n0"])
    assert {n for n in NODES if after[n] != before[n]} == {"n2"}
    assert etcd(trio["n0"])["restarts"] == 1


def test_an_older_copy_of_a_member_that_was_replaced_is_not_started(trio: YrCluster) -> None:
    """Its etcd would take messages for its successor, and die of them again and again."""
    node, old = trio["n1"], trio["n1"].home / "etcd"
    go_down(node)
    old.rename(node.home / "etcd.old")
    node.start()
    trio.wait("replaced", lambda: whole(trio), 60)
    new = str(listed(trio["n0"])["n1"])
    trio.wait("the new record", lambda: new in (node.home / "etcd-member.json").read_text(), 30)
    before, restarts = len(told(node)), etcd(trio["n0"])["restarts"]
    go_down(node)
    lose_data(node)
    (node.home / "etcd.old").rename(old)
    node.start()
    trio.wait("three members", lambda: whole(trio) and len(told(node)) > before, 60)
    assert told(node)[before:] == ["member-aside", "member-remove", "member-add", "member-join"]
    assert etcd(trio["n0"])["restarts"] == restarts


def test_two_that_are_new_begin_no_cluster_beside_a_third_that_remembers_one(trio: YrCluster) -> None:
    for name in NODES:
        go_down(trio[name])
    lose_data(trio["n0"])
    for name in ("n1", "n2"):
        shutil.rmtree(trio[name].home)
        only_etcd(trio[name])
    for name in ("n1", "n2", "n0"):
        trio[name].start()
    for name in ("n1", "n2"):
        waits(trio, trio[name], "etcd has no data here, and its cluster exists", "known to n0")
    # longer than anybody is given time to say what he knows
    until = time.monotonic() + PATIENCE_S + 3
    while time.monotonic() < until:
        assert not any((trio[n].home / "etcd/member").exists() for n in NODES)
        time.sleep(0.3)
    # an operator's word that the data are lost for good
    (trio["n0"].home / "etcd-member.json").unlink()
    trio.wait("a new cluster", lambda: whole(trio), 60)


@pytest.mark.slow
def test_without_a_quorum_the_member_that_is_left_is_let_be(trio: YrCluster) -> None:
    for name in ("n0", "n1"):
        assert trio[name].cli("stop", "etcd", "--yes").returncode == 0
    left, pid = trio["n2"], trio["n2"].pids()["etcd"]
    trio.wait("no quorum", lambda: quorum(left).startswith("waits for n0, n1: no quorum"), 30)
    trio.wait("the store away", lambda: not left.status()["store"]["available"], 30)

    def looked() -> bool:
        assert (etcd(left)["pid"], etcd(left)["state"]) == (pid, "ready")
        return "this member answers for itself" in etcd(left)["checks"]["read"]["evidence"]

    trio.wait("what the read says", looked, 30)
    # longer than ten reads that fail, which is what restarts a member that is at fault
    until = time.monotonic() + 14
    while time.monotonic() < until:
        assert looked()
        time.sleep(0.3)
    assert any(e["what"] == "check-failed" and "no quorum" in e["evidence"] for e in left.events())

    # a member that dies now starts again, and waits
    os.kill(pid, signal.SIGKILL)
    waits(trio, left, "not yet proven: quorum: waits for n0, n1: no quorum")
    assert etcd(left)["state"] == "starting"
    again = left.pids()["etcd"]
    for name in ("n0", "n1"):
        assert trio[name].cli("start", "etcd", "--yes").returncode == 0
    trio.wait("three members", lambda: whole(trio), 60)
    assert left.pids()["etcd"] == again


@pytest.mark.slow
def test_two_that_lost_their_data_wait_for_the_third_and_then_for_an_operator(trio: YrCluster) -> None:
    for name in NODES:
        go_down(trio[name])
    for name in ("n1", "n2"):
        lose_data(trio[name])
        trio[name].start()
    for name in ("n1", "n2"):
        reason = waits(trio, trio[name], "waits for a quorum", "etcd has no data here, and its cluster exists")
        assert "yrnode stop etcd; then move" in reason
        assert str(trio[name].home / "etcd-member.json") in reason
    trio["n0"].start()
    waits(trio, trio["n0"], "waits for n1, n2: no quorum")
    waits(trio, trio["n1"], "known to n0, n2")
    assert [(trio[n].home / "etcd/member").exists() for n in NODES] == [True, False, False]

    # the cure that they name
    for node in trio.nodes.values():
        assert node.cli("stop", "etcd", "--yes").returncode == 0
    trio.wait("all stopped", lambda: all(etcd(n)["state"] == "stopped" for n in trio.nodes.values()), 30)
    for node in trio.nodes.values():
        for name in ("etcd", "etcd-member.json"):
            (node.home / name).rename(node.home / f"{name}.away")
    for node in trio.nodes.values():
        assert node.cli("start", "etcd", "--yes").returncode == 0
    trio.wait("a new cluster", lambda: whole(trio), 60)
    for node in trio.nodes.values():
        shutil.rmtree(node.home / "etcd.away")


@pytest.mark.slow
def test_old_data_do_not_mix_with_a_cluster_that_was_begun_without_them(trio: YrCluster) -> None:
    """Two machines were set up again while the third was off: nobody is left who could have known."""
    for name in NODES:
        go_down(trio[name])
    for name in ("n1", "n2"):
        shutil.rmtree(trio[name].home)
        only_etcd(trio[name])
        trio[name].start()
    trio.wait("a cluster of two", lambda: all(quorum(trio[n]).startswith("2 of 3") for n in ("n1", "n2")), 60)
    # their ids are the same as before: etcd itself would not see the difference
    trio["n0"].start()
    trio.wait("three members", lambda: whole(trio), 60)
    assert told(trio["n0"])[-4:] == ["member-aside", "member-remove", "member-add", "member-join"]
    why = [e for e in trio["n0"].events() if e["what"] == "member-aside"][-1]
    assert "the one that lives is" in why["text"]
    # the one start after all were ended
    assert [etcd(trio[n])["restarts"] for n in NODES] == [1, 1, 1]
