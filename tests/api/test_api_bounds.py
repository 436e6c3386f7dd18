"""What clients cannot do: keep others out, hold the loop, make the daemon grow, or flood its records."""

import asyncio
import contextlib
import os
import resource
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.api.served import answer, ask, code, connect, get, served
from yrnode.api import bounds, refusals
from yrnode.api.bounds import MOST_CONNECTIONS, Turns
from yrnode.model.cause import Cause, Reason

STREAM = b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /control/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n" + b'{"target": "worker"}'


@pytest.fixture
def api(tmp_path):
    with served(tmp_path) as found:
        yield found


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def refused(api):
    return [e for e in api.node.events.since(0) if e.what == "refused"]


def test_a_change_over_tcp_is_recorded_and_a_flood_of_them_bounded(api):
    for _ in range(200):
        assert code(ask(api.port, POST)) == 405
    found = refused(api)
    assert len(found) == refusals.FIRST
    assert found[0].text.startswith("refused: POST /control/stop by 127.0.0.1:")
    assert "over TCP" in found[0].text
    assert found[0].reason == "operator"
    api.close()
    assert refused(api)[-1].text.startswith(
        f"{200 - refusals.FIRST} more changes were refused within 60 s; the last: P"
    )
    assert api.node.asked == []


def test_a_flood_on_tcp_does_not_hide_what_the_socket_refuses(api, monkeypatch):
    for _ in range(20):
        ask(api.port, POST)
    monkeypatch.setattr("yrnode.api.control.os.geteuid", lambda: 4711)
    monkeypatch.setattr("yrnode.api.peer.struct.unpack", lambda *_: (os.getpid(), 65534, 65534))
    assert code(ask(api.path, POST)) == 403
    assert "uid 65534" in refused(api)[-1].text
    assert refused(api)[-1].evidence == "only root and uid 4711 may change anything here"


def test_a_path_cannot_forge_a_line(api):
    ask(api.port, b"DELETE /x%0Aetcd:%20failed%1b[2J HTTP/1.1\r\nHost: x\r\n\r\n")
    assert "DELETE /x\\netcd: failed\\x1b[2J by" in refused(api)[0].text


def test_what_is_no_http_is_answered_and_told_once(api):
    for _ in range(50):
        assert code(ask(api.port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")) == 400
    assert len([r for r in api.records if "could not be served" in r]) <= 1


def test_silent_connections_make_room_for_others(api, many_files):
    slow = b"GET /status HTTP/1.1\r\nHost: x\r\nX-Slow: "
    with contextlib.ExitStack() as stack:
        for i in range(3 * MOST_CONNECTIONS):
            s = stack.enter_context(connect(api.port))
            with contextlib.suppress(OSError):
                s.sendall(slow[: i % len(slow)])
        assert get(api.port, "/livez") == 200
        assert get(api.path, "/status") == 200
    until(lambda: get(api.port, "/livez") == 200)


def test_where_nobody_is_silent_the_next_is_told_so(api, monkeypatch):
    monkeypatch.setattr(bounds, "MOST_CONNECTIONS", 4)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            assert code(answer(stack.enter_context(connect(api.port)), STREAM)) == 200
        found = ask(api.port, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert code(found) == 503
        assert b"Retry-After: 1" in found
        assert b"\r\nYrnode-Node: lab/n0\r\n" in found, "it is yrnode who has no room"
        # the operator's own way in is another listener
        assert get(api.path, "/status") == 200
    until(lambda: get(api.port, "/livez") == 200)


def test_a_head_without_end_is_cut_off(api):
    def endless(s):
        s.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n")
        for i in range(100_000):
            s.sendall(f"X-{i}: {'y' * 4000}\r\n".encode())

    with connect(api.port) as s, pytest.raises(ConnectionError):
        endless(s)


def test_a_connection_serves_one_request(api):
    one = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(api.port) as s:
        s.sendall(one * 100)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while more := s.recv(65536):
                found += more
    assert found.count(b"HTTP/1.1 200 OK") == 1
    assert b"Connection: close" in found


@pytest.fixture
def large(api, monkeypatch):
    """Many long events, more than the buffers of a connection take; turns are not waited for here."""
    monkeypatch.setattr(bounds, "WAIT_S", 60.0)
    monkeypatch.setattr(bounds, "REST", 0.0)
    api.node.events._events.extend(event(i) for i in range(1500))
    api.node.events._last = 1500
    return b"GET /events?since=0 HTTP/1.1\r\nHost: x\r\n\r\n"


def test_readers_that_do_not_read_are_bounded_in_number(api, large, monkeypatch, many_files):
    monkeypatch.setattr(bounds, "SEND_S", 60.0)
    with contextlib.ExitStack() as stack:
        for _ in range(bounds.MOST_SENDING):
            s = stack.enter_context(connect(api.port, 30))
            assert code(answer(s, large)) == 200
        found = ask(api.port, large, seconds=30)
        assert (code(found), b"Retry-After: 1" in found) == (503, True)
        assert get(api.port, "/livez", 30) == 200
    until(lambda: get(api.port, "/events?since=0", 30) == 200, 30)


def test_a_reader_that_does_not_read_is_cut_off(api, large, monkeypatch):
    monkeypatch.setattr(bounds, "SEND_S", 1.0)
    with connect(api.port, 30) as s:
        assert code(answer(s, large)) == 200
        held = psutil.Process().num_fds()
        until(lambda: psutil.Process().num_fds() < held, 30)
        # what the kernel had taken still comes, the rest does not
        read = 0
        with contextlib.suppress(ConnectionError):
            while more := s.recv(65536):
                read += len(more)
    assert read < 1500 * 4000


def event(seq):
    from yrnode.model.event import Event

    return Event(seq + 1, 0.0, "worker", "stop", "check", "x" * 2000, "y" * 2000)


async def test_turns_leave_the_loop_to_others_between_them():
    turns, late = Turns(), []

    async def other():
        while True:
            due = time.monotonic() + 0.001
            await asyncio.sleep(0.001)
            late.append(time.monotonic() - due)

    watching = asyncio.create_task(other())
    began = time.monotonic()
    done = await asyncio.gather(*(turns.take(lambda: time.sleep(0.01) or 1) for _ in range(20)))
    took = time.monotonic() - began
    watching.cancel()
    assert done == [1] * 20
    # 10 ms each, and twice that between two of them
    assert took > 0.5
    assert sorted(late)[len(late) // 2] < 0.01


async def test_who_waits_too_long_for_a_turn_is_told_so(monkeypatch):
    monkeypatch.setattr(bounds, "WAIT_S", 0.05)
    turns = Turns()
    asked = [turns.take(lambda: time.sleep(0.03)) for _ in range(bounds.MOST_WAITING + 5)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    refusals_ = [getattr(e, "status", None) for e in found if e is not None]
    assert set(refusals_) == {429}
    assert 1 <= len([e for e in found if e is None]) <= 4
    monkeypatch.setattr(bounds, "WAIT_S", 10.0)
    assert await turns.take(lambda: "again") == "again"


async def test_a_turn_that_raises_is_given_back():
    turns = Turns()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await turns.take(lambda: 1 // 0)


def test_a_fault_of_our_own_is_one_line_and_no_traceback_for_the_client(api, monkeypatch):
    monkeypatch.setattr(api.node.metrics, "text", lambda: 1 // 0)
    with connect(api.port) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        found = b""
        while more := s.recv(65536):
            found += more
    assert code(found) == 500
    assert b"see its log" in found
    assert b"ZeroDivision" not in found
    assert any("/metrics" in r for r in api.records)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/stream", "/events"])
def test_a_thousand_streams(api, many_files, path):
    """What is beyond the bound is refused; the loop, the probes and the operator do not notice; nothing is left."""
    ask_for = f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n".encode()
    get(api.port, "/metrics")
    tasks, fds, rss = api.tasks(), psutil.Process().num_fds(), psutil.Process().memory_info().rss
    api.held, slowest, codes, opened = 0.0, 0.0, [], 0
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            with contextlib.suppress(OSError):
                s = stack.enter_context(connect(api.port))
                s.sendall(ask_for)
                opened += 1
        assert opened > 900
        for i in range(100):
            emit(api, i)
            began = time.monotonic()
            codes += [get(api.port, "/livez", 20), get(api.path, "/status", 20)]
            slowest = max(slowest, time.monotonic() - began)
    assert set(codes) == {200}
    assert api.held < 0.25
    until(lambda: api.tasks() <= tasks)
    until(lambda: psutil.Process().num_fds() <= fds)
    grown = (psutil.Process().memory_info().rss - rss) / 2**20
    print(f"{path}: loop held {api.held * 1e3:.0f} ms, slowest look {slowest * 1e3:.0f} ms, {grown:.1f} MiB more")
    assert grown < 40


def emit(api, i):
    done = threading.Event()

    def now():
        api.node.events.emit("etcd", f"e{i}", Cause(Reason.START, "first start"))
        done.set()

    api._loop.call_soon_threadsafe(now)
    assert done.wait(5)


def test_the_operators_command_works_while_tcp_is_flooded(api, many_files):
    end = threading.Event()

    def flood(path: str):
        while not end.is_set():
            with contextlib.suppress(OSError):
                ask(api.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    threads = [threading.Thread(target=flood, args=(p,)) for p in ("/metrics", "/status", "/", "/events") * 4]
    for t in threads:
        t.start()
    try:
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert get(Path(api.path), "/status") == 200
            assert get(api.port, "/livez") == 200
            slowest = max(slowest, time.monotonic() - began)
    finally:
        end.set()
        for t in threads:
            t.join(10)
    assert slowest < 2.0
