"""What systemd is told, and when: on a real datagram socket."""

import os
import socket
import time

import pytest

from yrnode.telemetry.notify import Teller, notify, watchdog_s


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """Gives what has been said since the last call."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "notify"))
        s.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        def said() -> list[dict[str, str]]:
            found = []
            while True:
                try:
                    lines = s.recv(4096).decode().split("\n")
                except BlockingIOError:
                    return found
                found.append(dict(line.split("=", 1) for line in lines))

        yield said


def test_ready_is_said_with_the_first_round_and_once(systemd):
    teller = Teller()
    assert not teller.tell(0, "starts")
    assert systemd() == [{"STATUS": "starts"}]
    assert teller.tell(1, "starts")
    assert systemd() == [{"READY": "1", "WATCHDOG": "1"}]
    assert teller.tell(2, "runs")
    assert systemd() == [{"WATCHDOG": "1", "STATUS": "runs"}]


def test_a_loop_that_makes_no_rounds_does_not_feed_the_watchdog(systemd):
    teller = Teller()
    teller.tell(5, "runs")
    systemd()
    for _ in range(3):
        teller.tell(5, "runs")
    assert systemd() == []
    teller.tell(5, "still has words")
    assert systemd() == [{"STATUS": "still has words"}]


def test_a_stop_extends_its_time_while_rounds_are_made(systemd):
    teller = Teller()
    teller.tell(1, "runs")
    systemd()
    teller.tell(2, "stops", 90.0)
    assert systemd() == [
        {"WATCHDOG": "1", "STATUS": "stops", "STOPPING": "1", "EXTEND_TIMEOUT_USEC": "90000000"}
    ]  # fmt: skip
    teller.tell(3, "stops", 89.5)
    assert systemd() == [{"WATCHDOG": "1", "EXTEND_TIMEOUT_USEC": "89500000"}]
    teller.tell(3, "stops", 89.0)
    assert systemd() == []
    # beyond the sum of the deadlines nothing more is asked for
    teller.tell(4, "stops", 0.0)
    assert systemd() == [{"WATCHDOG": "1"}]


def test_what_could_not_be_said_is_said_again(systemd, monkeypatch):
    teller = Teller()
    address = os.environ["NOTIFY_SOCKET"]
    monkeypatch.setenv("NOTIFY_SOCKET", address + ".away")
    assert not teller.tell(1, "runs")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert teller.tell(1, "runs")
    assert systemd() == [{"READY": "1", "WATCHDOG": "1", "STATUS": "runs"}]


def test_a_long_status_is_cut(systemd):
    Teller().tell(0, "x" * 1000)
    (said,) = systemd()
    assert said["STATUS"] == "x" * 300 + "…"


def test_a_systemd_that_does_not_read_is_not_waited_for(systemd):
    began = time.monotonic()
    sent = [notify(STATUS="x" * 1000) for _ in range(500)]
    assert time.monotonic() - began < 5
    assert sent[0]
    assert not sent[-1]
    assert systemd()


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_notify_reaches_systemd(tmp_path, monkeypatch, kind):
    name = str(tmp_path / "n.sock") if kind == "path" else f"\0yrnode-test-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(name)
        s.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        assert notify(READY="1", STATUS="two\nlines")
        assert s.recv(1000) == b"READY=1\nSTATUS=two lines"


def test_notify_without_systemd_does_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert notify(READY="1") is False
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    assert notify(WATCHDOG="1") is False
    monkeypatch.setenv("NOTIFY_SOCKET", "vsock:2:1234")
    assert notify(STOPPING="1") is False


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        (None, None, None),
        ("2500000", None, 2.5),
        ("2500000", "own", 2.5),
        ("2500000", "1", None),
        ("x", None, None),
        ("0", None, None),
    ],
)
def test_watchdog(monkeypatch, usec, pid, seconds):
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert watchdog_s() == seconds
