"""Events: numbered for good, kept in a bounded file, told to readers who may be slow."""

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import Cover
from yrnode.telemetry.event_file import read_events
from yrnode.telemetry.events import LONGEST_TEXT, LOST, EventLog

START = Cause(Reason.START, "first start")
KILLED = Cause(Reason.EXITED, "killed by signal 9", "wait status 9", "rank/serve/1")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(events):
    return [e.seq for e in events]


def test_one_line_in_each_place(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = tmp_path / "deep" / "events.jsonl"
    log = EventLog(path, clock=lambda: 1234.56789)
    event = log.emit("worker", "stopping", KILLED, instance="w1", generation=3)
    assert lines(path) == [event.as_dict()] == [e.as_dict() for e in log.since(0)]
    assert (event.seq, event.at, event.reason, event.culprit) == (1, 1234.568, "exited", "rank/serve/1")
    assert [r.getMessage() for r in caplog.records] == [event.line()]
    assert event.line() == "worker: stopping: killed by signal 9 [wait status 9] generation=3 instance=w1"
    assert caplog.records[0].levelno == logging.WARNING
    log.emit("worker", "starting", START)
    assert caplog.records[1].levelno == logging.INFO


def test_secrets_are_in_no_place_where_an_event_goes(tmp_path, caplog):
    path = tmp_path / "events.jsonl"
    log = EventLog(path, cover=Cover(["known-4e1b"]))
    log.emit("store", "unavailable", Cause(Reason.CHECK, "it said known-4e1b", "x " * 1000 + "http://me:pw77@host"))
    log.emit("router", "held-up", Cause(Reason.RESIDUE, "token=abcdef"))
    everywhere = path.read_text() + caplog.text + repr(log.since(0))
    assert [word for word in ("known-4e1b", "pw77", "abcdef") if word in everywhere] == []
    assert [e.text for e in log.since(0)] == ["it said ***", "token=***"]


def test_numbers_go_on_after_a_restart(tmp_path):
    path = tmp_path / "events.jsonl"
    first = EventLog(path)
    for _ in range(3):
        first.emit("etcd", "x", KILLED, instance="i", generation=2)
    second = EventLog(path)
    assert second.since(0) == first.since(0)
    assert second.emit("etcd", "y", START).seq == 4


def test_a_torn_last_line_goes_and_the_next_event_is_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.emit("etcd", "one", START)
    log.emit("etcd", "two", START)
    path.write_bytes(path.read_bytes()[:-20])
    again = EventLog(path)
    assert numbers(again.since(0)) == [1]
    again.emit("etcd", "three", START)
    assert [e["what"] for e in lines(path)] == ["one", "three"]


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path):
    path = tmp_path / "events.jsonl"
    EventLog(path).emit("etcd", "one", START)
    path.write_bytes(path.read_bytes().rstrip())
    EventLog(path).emit("etcd", "two", START)
    assert [(e["seq"], e["what"]) for e in lines(path)] == [(1, "one"), (2, "two")]


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 5000 + b"\n",
        b"not json\n",
        b"[]\n",
        b'{"seq": "7"}\n',
        b'{"seq": 7}\n',
        b"\xff\xfe\n",
        b"[" * 9000 + b"\n",
    ],
)
def test_a_corrupt_file_is_set_aside_and_its_numbers_go_on(tmp_path, damage, caplog):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.emit("etcd", "one", START)
    with path.open("ab") as f:
        f.write(damage)
    broken = path.read_bytes()
    again = EventLog(path)
    assert (tmp_path / "events.jsonl.corrupt").read_bytes() == broken
    assert "set aside" in caplog.text
    again.emit("etcd", "two", START)
    assert [(e["seq"], e["what"]) for e in lines(path)] == [(1, "one"), (2, "two")]


def test_the_file_is_bounded_and_rotates_once(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path, max_bytes=2000, keep=50)
    for _ in range(200):
        log.emit("worker", "x", KILLED)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.jsonl", "events.jsonl.1"]
    assert all(0 < p.stat().st_size <= 2000 for p in tmp_path.iterdir())
    found = read_events(path, 1000)
    assert numbers(found) == list(range(found[0].seq, 201)), "an event was lost between the two files"
    assert numbers(EventLog(path, max_bytes=2000, keep=50).since(195)) == [196, 197, 198, 199, 200]


def test_memory_is_bounded_and_long_words_are_cut():
    log = EventLog(None, keep=10)
    for _ in range(30):
        log.emit("x", "y", Cause(Reason.EXITED, "t" * 100_000, "e" * 100_000))
    assert numbers(log.since(0)) == list(range(21, 31))
    assert numbers(log.since(28)) == [29, 30]
    assert log.since(30) == []
    assert log.since(10**9) == []
    assert len(log.since(29)[0].evidence) == LONGEST_TEXT + 1


def test_lone_surrogates_of_file_names_are_written(tmp_path):
    path = tmp_path / "events.jsonl"
    EventLog(path).emit("x", "y", Cause(Reason.EXITED, "file \udcff"))
    assert EventLog(path).since(0)[0].text == r"file \udcff"


def test_a_file_that_was_moved_away_comes_back(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.emit("x", "one", START)
    path.rename(tmp_path / "elsewhere")
    log.emit("x", "two", START)
    assert [e["what"] for e in lines(path)] == ["two"]


def test_a_place_that_cannot_be_written_costs_only_the_file(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    log = EventLog(tmp_path / "file" / "events.jsonl")
    for _ in range(3):
        log.emit("x", "y", START)
    assert numbers(log.since(0)) == [1, 2, 3]
    assert caplog.text.count("cannot be written") == 1


_FULL = """
import logging, resource, signal, sys
from pathlib import Path
from yrnode.model.cause import Cause, Reason
from yrnode.telemetry.events import EventLog

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
log = EventLog(Path(sys.argv[1]), keep=100)
cause = Cause(Reason.START, "x" * 50)
log.emit("t", "before", cause)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
# the second line fits only in part
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 30, hard))
for _ in range(int(sys.argv[2])):
    log.emit("t", "full", cause)
assert Path(sys.argv[1]).stat().st_size == size, "half a line was left"
assert log.since(0)[-1].what == "full"
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.emit("t", "after", cause)
log.emit("t", "after", cause)
"""


@pytest.mark.parametrize(
    ("events", "kept", "words"),
    [(20, 20, "with 20 events that had waited"), (150, 99, "with 99 events that had waited; 51 older ones are lost")],
)
def test_a_full_disk_raises_nothing_and_heals(tmp_path, events, kept, words):
    path = tmp_path / "events.jsonl"
    child = subprocess.run(
        [sys.executable, "-c", _FULL, str(path), str(events)], capture_output=True, text=True, timeout=30, check=False
    )
    assert child.returncode == 0, child.stderr
    said = child.stdout.splitlines()
    assert len(said) == 2, said
    assert "cannot be written" in said[0]
    assert words in said[1]
    assert [e["what"] for e in lines(path)] == ["before", *["full"] * kept, "after", "after"]


async def taken(feed, n):
    return [await asyncio.wait_for(feed.__anext__(), 5) for _ in range(n)]


async def test_subscribers_get_the_past_and_what_comes():
    log = EventLog(None)
    for _ in range(3):
        log.emit("x", "y", START)
    replay, live = log.subscribe(1), log.subscribe()
    assert numbers(await taken(replay, 2)) == [2, 3]
    waiting = asyncio.create_task(taken(live, 2))
    await asyncio.sleep(0)
    log.emit("x", "y", START)
    log.emit("x", "y", START)
    assert numbers(await waiting) == [4, 5]
    assert numbers(await taken(replay, 2)) == [4, 5]
    await replay.aclose()
    await live.aclose()
    assert not log._wakers


async def test_a_slow_reader_loses_with_a_marker_and_stops_nobody():
    log = EventLog(None, keep=10)
    log.emit("x", "y", START)
    feed = log.subscribe(0)
    assert numbers(await taken(feed, 1)) == [1]
    for _ in range(50):
        log.emit("x", "y", START)
    marker, *rest = await taken(feed, 11)
    assert (marker.what, marker.text) == (LOST, "40 events were not delivered to this reader")
    assert numbers([marker, *rest]) == list(range(41, 52))
    await feed.aclose()


async def test_a_reader_from_another_life_gets_all():
    log = EventLog(None)
    log.emit("x", "y", START)
    feed = log.subscribe(99)
    assert numbers(await taken(feed, 1)) == [1]
    await feed.aclose()


def test_reading_a_file_changes_nothing(tmp_path):
    path = tmp_path / "events.jsonl"
    assert read_events(path, 5) == []
    EventLog(path).emit("x", "y", START)
    with path.open("ab") as f:
        f.write(b'{"torn')
    before = path.read_bytes()
    assert numbers(read_events(path, 5)) == [1]
    assert path.read_bytes() == before
    assert Path(path).parent == tmp_path
