"""The page's stream: what it sends, when, and what many or slow readers cost."""

import asyncio
import contextlib
import json
import socket
import time

import aiohttp
import pytest

from tests.api.fake import START, FakeNode, snapshot, view
from yrnode.api import streams
from yrnode.api.server import Api
from yrnode.model.cause import Cause, Reason
from yrnode.model.state import Plane, State


@pytest.fixture
async def served(tmp_path):
    node = FakeNode(tmp_path)
    api = Api(node, "127.0.0.1", 0, tmp_path / "run" / "y.sock")
    await api.start()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{api.port}", connector=connector) as session:
        yield node, api, session
    await api.close()


async def message(response):
    """The next one: its fields."""
    found = {}
    while True:
        line = (await asyncio.wait_for(response.content.readline(), 5)).decode().rstrip("\n")
        if not line:
            return found
        name, _, value = line.partition(": ")
        found[name] = json.loads(value) if name == "data" else value


async def until_status(response, condition):
    while True:
        found = await message(response)
        if found.get("event") == "status" and condition(found["data"]):
            return found["data"]


async def test_it_begins_with_all_there_is_and_goes_on(served):
    node, _, session = served
    node.events.emit("etcd", "ready", START)
    async with session.get("/stream") as r:
        assert r.content_type == "text/event-stream"
        first = [await message(r) for _ in range(3)]
        assert [m.get("event") for m in first] == ["status", "cache", None]
        assert first[0]["data"]["ready"]
        assert first[1]["data"]["series"] == {}
        assert (first[2]["id"], first[2]["data"]["what"]) == ("1", "ready")
        node.state = snapshot(view("worker", Plane.CACHE, State.FAILED, cause=Cause(Reason.EXITED, "exit code 1")))
        found = await until_status(r, lambda s: not s["ready"])
        assert found["components"]["worker"]["state"] == "failed"


async def test_who_comes_back_gets_what_it_missed(served):
    node, _, session = served
    for what in ("one", "two", "three"):
        node.events.emit("etcd", what, START)
    async with session.get("/stream", headers={"Last-Event-ID": "1"}) as r:
        seen = [await message(r) for _ in range(4)]
    assert [m["data"]["what"] for m in seen if "id" in m] == ["two", "three"]


async def test_a_status_that_only_ages_is_sent_rarely(served, monkeypatch):
    monkeypatch.setattr(streams, "LOOK_S", 0.02)
    monkeypatch.setattr(streams, "RENEW_S", 0.6)
    _, _, session = served
    async with session.get("/stream") as r:
        assert (await message(r))["event"] == "status"
        began = time.monotonic()
        await until_status(r, lambda s: True)
        assert time.monotonic() - began > 0.4


async def test_many_streams_share_the_work_and_leave_nothing(served, monkeypatch):
    node, _, session = served
    made = []
    snap = node.snapshot
    monkeypatch.setattr(node, "snapshot", lambda: made.append(time.monotonic()) or snap())
    latest = 0.0
    before = len(asyncio.all_tasks())
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(session.get("/stream")) for _ in range(streams.MOST_STREAMS)]
        async with session.get("/stream", headers={"Connection": "close"}) as refused:
            assert refused.status == 503
        readers = [asyncio.create_task(until_status(r, lambda s: not s["ready"])) for r in opened]
        began = time.monotonic()
        for i in range(100):
            node.events.emit("etcd", f"e{i}", START)
            # the work of this thread: others on the machine are not its own
            worked = time.thread_time()
            await asyncio.sleep(0.01)
            latest = max(latest, time.thread_time() - worked)
        node.state = snapshot(view("worker", Plane.CACHE, State.FAILED))
        await asyncio.wait_for(asyncio.gather(*readers), 10)
        seconds = time.monotonic() - began
    assert latest < 0.5, "the loop stood still"
    # status at most 4 a second and hit rates one in five seconds, for all of them together
    assert len(made) <= 5 * seconds + 10
    await until(lambda: not node.events._wakers)
    await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_a_reader_that_takes_nothing_is_cut_off(served, monkeypatch):
    monkeypatch.setattr(streams, "STUCK_S", 0.3)
    node, api, session = served
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", api.port))
        s.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: node.events._wakers)
        end = time.monotonic() + 20
        while node.events._wakers:
            assert time.monotonic() < end, "it is still held"
            node.events.emit("etcd", "much", Cause(Reason.EXITED, "x" * 2000, "y" * 2000))
            await asyncio.sleep(0.001)
    async with session.get("/livez") as r:
        assert r.status == 200


async def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
