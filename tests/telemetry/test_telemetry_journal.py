"""Records in the journal's own protocol, on a real datagram socket."""

import os
import socket
import subprocess
import sys
import time
import types

import pytest

from yrnode.model.cause import Cause, Reason
from yrnode.telemetry import journal
from yrnode.telemetry.events import EventLog, journal_fields
from yrnode.telemetry.journal import Journal, encode


def decode(data: bytes) -> dict[str, str]:
    """A record as the protocol's document describes it, independent of `encode`."""
    fields = {}
    while data:
        name, _, rest = data.partition(b"\n")
        if b"=" in name:
            key, _, value = name.partition(b"=")
            data = rest
        else:
            key, size = name, int.from_bytes(rest[:8], "little")
            value, end, data = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert end == b"\n"
        fields[key.decode()] = value.decode()
    return fields


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "journal"))
        s.settimeout(5)
        yield s, str(tmp_path / "journal")


@pytest.mark.parametrize("value", ["", "plain", "a=b", "two\nlines", "\n", "ends\n", "ä\nö", "x" * 5000])
def test_every_value_arrives_as_it_was(value):
    record = {"MESSAGE": value, "PRIORITY": "6"}
    assert decode(encode(record)) == record


def test_the_wire_format():
    assert encode({"A": "1", "B": "x\ny"}) == b"A=1\nB\n\x03\0\0\0\0\0\0\0x\ny\n"
    assert encode({"A": "\udcff"}) == b"A=\\udcff\n"


def test_a_record_arrives(listener):
    s, path = listener
    sender = Journal(path)
    assert sender.send({"MESSAGE": "hello"})
    assert decode(s.recv(10000)) == {"MESSAGE": "hello"}
    sender.close()


def test_a_journal_that_is_away_costs_nothing_and_its_return_is_found(tmp_path):
    path = str(tmp_path / "journal")
    sender = Journal(path)
    assert not sender.send({"MESSAGE": "nobody"})
    for _ in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(path)
            # the first record after a restart of the journal finds that the old socket is gone
            assert sender.send({"MESSAGE": "again"}) or sender.send({"MESSAGE": "again"})
            s.settimeout(5)
            assert decode(s.recv(1000)) == {"MESSAGE": "again"}
        os.unlink(path)
        assert not sender.send({"MESSAGE": "nobody"})


def test_a_journal_that_does_not_read_is_not_waited_for(listener):
    _, path = listener
    sender = Journal(path)
    began = time.monotonic()
    taken = [sender.send({"MESSAGE": "x" * 1000}) for _ in range(2000)]
    assert time.monotonic() - began < 5
    assert taken[0]
    assert not taken[-1]
    sender.close()


@pytest.mark.parametrize("reads", [True, False])
def test_systemd_python_is_used_where_it_is_and_only_while_the_journal_reads(listener, monkeypatch, reads):
    _, path = listener
    sent = []
    module = types.ModuleType("systemd.journal")
    module.sendv = lambda *fields: sent.append(fields)
    monkeypatch.setitem(sys.modules, "systemd", types.ModuleType("systemd"))
    monkeypatch.setitem(sys.modules, "systemd.journal", module)
    monkeypatch.setattr(journal, "SOCKET", path)
    journal._systemd_python.cache_clear()
    try:
        if not reads:
            plain = Journal(path)
            plain._sendv = None
            while plain.send({"MESSAGE": "fills it"}):
                pass
        sender = Journal(path)
        assert sender.send({"MESSAGE": "a\nb", "PRIORITY": "6"}) is reads
        assert sent == ([(b"MESSAGE=a\nb", b"PRIORITY=6")] if reads else [])
    finally:
        journal._systemd_python.cache_clear()


def test_the_fields_of_an_event():
    events = EventLog(None)
    full = events.emit("worker", "stop", Cause(Reason.EXITED, "exited"), instance="ab12", generation=3)
    assert journal_fields(full) == {
        "YRNODE_TARGET": "worker",
        "YRNODE_WHAT": "stop",
        "YRNODE_REASON": "exited",
        "YRNODE_INSTANCE": "ab12",
        "YRNODE_GENERATION": "3",
    }
    bare = events.emit("yrnode", "closing", Cause(Reason.SHUTDOWN, "goes down"))
    assert list(journal_fields(bare)) == ["YRNODE_TARGET", "YRNODE_WHAT", "YRNODE_REASON"]


_TALK = """
import logging, sys
from yrnode.model.cause import Cause, Reason
from yrnode.telemetry import log
from yrnode.telemetry.events import EventLog
log.set_up(journal_socket=sys.argv[1])
EventLog(None).emit("worker", "stop", Cause(Reason.EXITED, "two\\nlines", "rc 3"), instance="ab12", generation=3)
logging.getLogger("yrnode.x").error("plain")
"""


def talk(path: str) -> bytes:
    """What a process whose stderr the journal reads writes to that stderr."""
    read, write = os.pipe()
    status = os.fstat(write)
    env = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
    try:
        subprocess.run([sys.executable, "-c", _TALK, path], stderr=write, env=env, timeout=20, check=True)
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as f:
        return f.read()


def test_log_records_go_to_the_journal_and_not_to_stderr_too(listener):
    s, path = listener
    assert talk(path) == b""
    event, plain = decode(s.recv(10000)), decode(s.recv(10000))
    assert event == {
        "MESSAGE": "worker: stop: two\\nlines [rc 3] generation=3 instance=ab12",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "yrnode",
        "YRNODE_TARGET": "worker",
        "YRNODE_WHAT": "stop",
        "YRNODE_REASON": "exited",
        "YRNODE_INSTANCE": "ab12",
        "YRNODE_GENERATION": "3",
    }
    assert plain == {"MESSAGE": "plain", "PRIORITY": "3", "SYSLOG_IDENTIFIER": "yrnode"}


def test_what_the_journal_does_not_take_goes_to_stderr(tmp_path):
    said = talk(str(tmp_path / "nobody")).decode().splitlines()
    assert said == ["<4>worker: stop: two\\nlines [rc 3] generation=3 instance=ab12", "<3>plain"]
