"""Which of systemd's jobs a SIGTERM belongs to: listings of systemd 252, and a systemctl that misbehaves."""

import time

import pytest

from yrnode.telemetry.jobs import Unit, job_of, own_unit, parse, unit_of

UNIT = "yrnode.service"


@pytest.mark.parametrize(
    ("listing", "job"),
    [
        ("109 yrnode.service restart running\n", "restart"),
        ("293 yrnode.service stop running\n", "stop"),
        ("340 yrnode.service start running\n", "start"),
        ("341 yrnode.service try-restart waiting\n", "try-restart"),
        ("", None),
        ("No jobs running.\n", None),
        ("77 other.service stop running\n", None),
        # at a shutdown there are many
        (
            "612 shutdown.target start waiting\n600 yrnode.service stop running\n601 tmp.mount stop waiting\n",
            "stop",
        ),
        # a unit whose name ends like ours, and an instance of a template
        ("5 my-yrnode.service stop running\n6 yrnode@a.service stop running\n", None),
        # what `--no-legend` leaves out, should an older systemctl print it all the same
        ("JOB UNIT           TYPE    STATE\n109 yrnode.service restart running\n\n1 jobs listed.\n", "restart"),
        ("x yrnode.service stop running\n", None),
        ("109 yrnode.service\n", None),
    ],
)
def test_the_listing(listing, job):
    assert parse(listing, UNIT) == job


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/yrnode.service\n", Unit(UNIT)),
        ("0::/system.slice/yrnode.service/supervisor\n", Unit(UNIT)),
        ("0::/system.slice/system-yrnode.slice/yrnode@a.service\n", Unit("yrnode@a.service")),
        ("9:name=systemd:/\n8:pids:/\n0::/system.slice/yrnode.service\n", Unit(UNIT)),
        # version 1 alone
        ("4:memory:/system.slice/yrnode.service\n1:name=systemd:/system.slice/yrnode.service\n", Unit(UNIT)),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/yrnode.service\n",
            Unit(UNIT, user=True),
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n", None),
        ("0::/user.slice/user-0.slice/session-3.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_unit_of_a_control_group(cgroup, unit):
    assert unit_of(cgroup) == unit


@pytest.mark.parametrize(
    ("environ", "ppid", "ours"),
    [
        ({"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": "77"}, 1, True),
        # a shell below a service has both, and its own pid
        ({"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": "76"}, 1, False),
        ({"INVOCATION_ID": "1"}, 1, True),
        ({"INVOCATION_ID": "1"}, 76, False),
        # a container's first process is nobody's unit
        ({}, 1, False),
        ({"INVOCATION_ID": ""}, 1, False),
    ],
)
def test_only_what_systemd_started_is_a_unit(environ, ppid, ours):
    found = own_unit(environ, "0::/system.slice/yrnode.service\n", pid=77, ppid=ppid)
    assert found == (Unit(UNIT) if ours else None)


def test_this_process_is_no_unit():
    assert own_unit() is None


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    def write(script: str) -> None:
        path = tmp_path / "systemctl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return write


def test_systemctl_is_asked_for_plain_lines(systemctl):
    systemctl('[ "$*" = "list-jobs --no-legend --plain --full" ] && echo "7 yrnode.service stop running"')
    assert job_of(Unit(UNIT)) == "stop"
    assert job_of(Unit(UNIT, user=True)) is None


def test_the_users_own_manager_is_asked(systemctl):
    systemctl('[ "$1" = --user ] && echo "7 yrnode.service restart running"')
    assert job_of(Unit(UNIT, user=True)) == "restart"


@pytest.mark.parametrize("script", ["exit 1", "printf '\\377\\376 x y z'", "kill -9 $$", "exec sleep 60"])
def test_a_systemctl_that_says_nothing_useful_in_time_names_no_job(systemctl, script):
    systemctl(script)
    began = time.monotonic()
    assert job_of(Unit(UNIT), timeout_s=0.5) is None
    assert time.monotonic() - began < 5


def test_without_systemctl_there_is_no_job(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_of(Unit(UNIT)) is None
