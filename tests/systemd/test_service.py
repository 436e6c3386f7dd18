"""The unit on a real systemd: what starts, what stops, and what keeps running."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from tests.support.node import cluster_text
from tests.systemd.box import UNIT, Service

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def installed() -> Iterator[Service]:
    service = Service(cluster_text(ranks=1))
    try:
        # short, and still longer than a busy test machine makes a healthy loop wait
        service.drop_in("watchdog", "WatchdogSec=5s")
        yield service
    finally:
        service.close()


@pytest.fixture
def service(installed: Service) -> Service:
    """Active and ready, whatever the test before has done to it."""
    if installed.box.show("ActiveState") != "active":
        installed.box.systemctl("start", UNIT)
    installed.wait_ready()
    return installed


def test_systemd_understands_every_line(installed: Service) -> None:
    """It says on stderr, and in the journal as it loads the unit, what it does not know."""
    path = f"/etc/systemd/system/{UNIT}"
    assert installed.box.run("sh", "-c", f"systemd-analyze verify {path} 2>&1") == ""
    assert UNIT not in installed.box.run("journalctl", "_PID=1", "-p", "warning", "-q", check=False)


def test_a_faulty_cluster_file_fails_the_start_at_once_and_a_mended_one_starts(installed: Service) -> None:
    good = installed.config.read_text()
    installed.config.write_text(good + "\nno_such_key: 1\n")
    try:
        installed.box.systemctl("start", UNIT, check=False)
        assert installed.box.show("ActiveState") in ("activating", "failed")
        assert "no_such_key" in installed.tail()
    finally:
        installed.config.write_text(good)
    installed.wait("start without another word", lambda: installed.box.show("ActiveState") == "active", 20)
    # active means: it supervises and answers. That engines load is no part of the start
    assert installed.get("/livez")[0] == 200
    assert not installed.status()["ready"]
    assert installed.box.show("StatusText").startswith("not ready: ")
    installed.wait_ready()
    ready = "ready: etcd, worker, rank/serve/0"
    installed.wait("status", lambda: installed.box.show("StatusText") == ready, 5)


def test_the_journal_can_be_asked_by_field(service: Service) -> None:
    found = service.box.journal("YRNODE_TARGET=rank/serve/0", "YRNODE_WHAT=ready")
    assert found
    entry, rank = found[-1], service.component("rank/serve/0")
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"], entry["YRNODE_REASON"]) == ("6", "yrnode", "proven")
    assert (entry["YRNODE_INSTANCE"], entry["YRNODE_GENERATION"]) == (rank["instance"], "1")
    assert entry["MESSAGE"].startswith("rank/serve/0: ready: ")
    # and not by stderr too
    assert not [e for e in service.box.journal("_TRANSPORT=stdout") if "rank/serve/0" in e["MESSAGE"]]


@pytest.mark.parametrize(
    ("what", "fate"),
    [
        (["restart", UNIT], ""),
        pytest.param(["try-restart", UNIT], "", marks=pytest.mark.slow),
        (["kill", "--kill-whom=main", UNIT], ""),
        (["kill", "--kill-whom=main", "--signal=KILL", UNIT], "signal"),
    ],
    ids=["restart", "try-restart", "kill by hand", "kill -9"],
)
def test_the_daemon_ends_and_everything_else_keeps_running(
    service: Service, what: list[str], fate: str | None
) -> None:
    main, children = service.main(), service.children()
    generation = service.status()["groups"]["serve"]["generation"]
    assert len(children) >= 4, "etcd, worker, and an engine with its core"
    with service.under_requests() as answers:
        service.box.systemctl(*what)
        service.wait_new_main(main)
        asked = len(answers)
        service.wait("further answers", lambda: len(answers) > asked + 5, 20)
    assert set(answers) == {"ok"}
    assert service.children() == children
    assert service.status()["groups"]["serve"]["generation"] == generation
    if fate:
        assert f"result '{fate}'" in service.tail()


def test_a_daemon_that_makes_no_rounds_is_ended_by_the_watchdog(service: Service) -> None:
    main, children = service.main(), service.children()
    with service.under_requests() as answers:
        service.box.run("kill", "-STOP", str(main))
        service.wait_new_main(main, 30)
    assert set(answers) == {"ok"}
    assert service.children() == children
    assert any("Watchdog timeout" in e["MESSAGE"] for e in service.box.journal())


@pytest.mark.slow
def test_a_loop_that_hangs_leaves_in_the_journal_where(service: Service) -> None:
    """The process and its other threads are well: only rounds feed the watchdog."""
    service.drop_in("slowly", "RestartSec=2s")
    main, children = service.main(), service.children()
    events, aside = service.dir / "state/events.jsonl", service.dir / "state/aside"
    events.rename(aside)
    # a disk that does not answer: nobody reads this, so that opening it waits for ever
    os.mkfifo(events)
    service.box.systemctl("kill", "--kill-whom=main", UNIT)
    service.wait("watchdog", lambda: "Watchdog timeout" in service.tail(), 20)
    service.wait("its end", lambda: service.main() == 0, 20)
    events.unlink()
    aside.rename(events)
    service.wait_new_main(main)
    assert service.children() == children
    hung = [e["MESSAGE"] for e in service.box.journal(f"_PID={main}") if "event_file.py" in e["MESSAGE"]]
    assert any("in _write" in line for line in hung)


def test_stop_ends_everything_in_order(service: Service) -> None:
    service.box.systemctl("stop", UNIT)
    assert service.box.processes() == {}
    assert service.left() == []
    assert (service.box.show("Result"), service.box.show("ExecMainStatus")) == ("success", "0"), service.tail()
    assert order_of_stops(service) == ["rank/serve/0", "worker", "etcd"]


@pytest.mark.slow
def test_a_restart_that_becomes_a_stop_stops(service: Service) -> None:
    """The stop is asked for when the daemon has just read that it is to be restarted."""
    late = service.dir / "late"
    late.mkdir()
    wrapper = late / "systemctl"
    wrapper.write_text(
        f"""#!/bin/sh
PATH=/usr/bin:/bin
systemctl "$@"
mkdir {late}/done && systemctl --no-block stop {UNIT}
"""
    )
    wrapper.chmod(0o755)
    service.drop_in("late", f"Environment=PATH={late}:/usr/sbin:/usr/bin:/sbin:/bin")
    (late / "done").mkdir()
    service.box.systemctl("restart", UNIT)
    service.wait_ready()
    (late / "done").rmdir()
    service.box.systemctl("restart", UNIT, check=False)
    service.wait("stop", lambda: service.box.show("ActiveState") == "inactive", 60)
    assert "the restart has become a stop" in service.tail()
    assert service.box.processes() == {}
    assert order_of_stops(service) == ["rank/serve/0", "worker", "etcd"]


@pytest.mark.slow
def test_a_stop_gets_the_time_that_its_components_need(service: Service) -> None:
    """A frozen etcd does not hear a TERM: it is killed after its grace, which the unit alone would not grant."""
    service.drop_in("short", "TimeoutStopSec=3s")
    service.box.run("kill", "-STOP", str(service.pids()["etcd"]))
    began = time.monotonic()
    service.box.systemctl("stop", UNIT)
    assert time.monotonic() - began > 8
    assert service.box.processes() == {}
    assert service.box.show("Result") == "success"
    assert order_of_stops(service)[-1] == "etcd"


@pytest.mark.slow
def test_the_machines_shutdown_stops_in_order(service: Service) -> None:
    """Last: the machine is off afterwards."""
    service.box.close()
    assert order_of_stops(service) == ["rank/serve/0", "worker", "etcd"]


def order_of_stops(service: Service) -> list[str]:
    """The components of the last shutdown, as the events file tells."""
    lines = (service.dir / "state/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    closing = max(i for i, e in enumerate(events) if e["what"] == "closing")
    return [e["target"] for e in events[closing:] if e["what"] == "rest"]
