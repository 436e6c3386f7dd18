"""The unit on a real systemd: what starts, what stops, and what keeps running."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.support.node import cluster_text
from tests.systemd.box import UNIT, Service

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def installed() -> Iterator[Service]:
    service = Service(cluster_text(ranks=1))
    try:
        service.drop_in("watchdog", "WatchdogSec=2s")
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
    said = installed.box.run("systemd-analyze", "verify", f"/etc/systemd/system/{UNIT}", check=False)
    assert said == ""
    assert "yrnode.service" not in installed.box.run("journalctl", "-b", "_PID=1", "-p", "warning", check=False)


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
    installed.wait(
        "status", lambda: installed.box.show("StatusText") == "ready: etcd, worker, rank/serve/0", 5
    )  # fmt: skip


def test_the_journal_can_be_asked_by_field(service: Service) -> None:
    found = service.box.journal("YRNODE_TARGET=rank/serve/0", "YRNODE_WHAT=ready")
    assert found
    entry, pid = found[-1], service.component("rank/serve/0")
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"], entry["YRNODE_REASON"]) == ("6", "yrnode", "proven")
    assert (entry["YRNODE_INSTANCE"], entry["YRNODE_GENERATION"]) == (pid["instance"], "1")
    assert entry["MESSAGE"].startswith("rank/serve/0: ready: ")
    # once, and not by stderr too
    assert len(service.box.journal("_TRANSPORT=stdout", "SYSLOG_IDENTIFIER=yrnode")) == len(
        [e for e in service.box.journal("_TRANSPORT=stdout") if "no_such_key" in e["MESSAGE"]]
    )


@pytest.mark.parametrize(
    ("what", "fate"),
    [
        (["restart", UNIT], ""),
        (["try-restart", UNIT], ""),
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
    assert (service.box.show("Result"), service.box.show("ExecMainStatus")) == ("success", "0")
    assert order_of_stops(service) == ["rank/serve/0", "worker", "etcd"]


def test_a_restart_that_becomes_a_stop_stops(service: Service) -> None:
    """The stop arrives when the daemon has read that it is to be restarted."""
    late = service.dir / "late"
    late.mkdir()
    wrapper = late / "systemctl"
    wrapper.write_text(
        f'#!/bin/sh\nPATH=/usr/bin:/bin; systemctl "$@"\n[ -e {late}/done ] || systemctl --no-block stop {UNIT}\n'
        f": >{late}/done\n"
    )
    wrapper.chmod(0o755)
    service.drop_in("late", f"Environment=PATH={late}:/usr/sbin:/usr/bin:/sbin:/bin")
    service.box.systemctl("restart", UNIT)
    service.wait_ready()
    (late / "done").unlink(missing_ok=True)
    service.box.systemctl("restart", UNIT, check=False)
    service.wait("stop", lambda: service.box.show("ActiveState") == "inactive", 40)
    assert service.box.processes() == {}
    assert order_of_stops(service) == ["rank/serve/0", "worker", "etcd"]


def order_of_stops(service: Service) -> list[str]:
    """The components of the last shutdown, as the events file tells."""
    lines = (service.dir / "state/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    closing = max(i for i, e in enumerate(events) if e["what"] == "closing")
    return [e["target"] for e in events[closing:] if e["what"] == "rest"]
