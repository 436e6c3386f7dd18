"""The real servers: TCP that changes nothing, and the socket that asks who is there."""

import asyncio
import contextlib
import errno
import json
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import time

import aiohttp
import pytest

from tests.api.fake import START, FakeNode, snapshot, view
from yrnode.api.app import read_app
from yrnode.api.peer import Peer
from yrnode.api.server import Api
from yrnode.api.streams import MOST_STREAMS
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import UsageError
from yrnode.model.state import Plane, State


@pytest.fixture
def node(tmp_path):
    return FakeNode(tmp_path)


@pytest.fixture
async def api(node, tmp_path):
    server = Api(node, "127.0.0.1", 0, tmp_path / "run" / "y.sock")
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def tcp(api):
    async with aiohttp.ClientSession(f"http://127.0.0.1:{api.port}") as session:
        yield session


@pytest.fixture
async def unix(api, tmp_path):
    connector = aiohttp.UnixConnector(str(tmp_path / "run" / "y.sock"))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
        yield session


async def get(session, path, **more):
    async with session.get(path, **more) as r:
        return r.status, await r.json()


async def test_livez_follows_the_loop(node, tcp):
    assert await get(tcp, "/livez") == (200, {"alive": True})
    node.beating = False
    assert await get(tcp, "/livez") == (503, {"alive": False})


async def test_readyz_says_why_not(node, tcp):
    assert await get(tcp, "/readyz") == (200, {"ready": True, "reasons": []})
    node.state = snapshot(view("worker", Plane.CACHE, State.FAILED, cause=Cause(Reason.EXITED, "exit code 1")))
    code, answer = await get(tcp, "/readyz")
    assert code == 503
    assert answer == {"ready": False, "reasons": ["worker is failed: exited: exit code 1"]}


async def test_status_on_both_sides_is_the_same(tcp, unix):
    (code, one), (_, other) = await get(tcp, "/status"), await get(unix, "/status")
    assert code == 200
    assert one["components"].keys() == other["components"].keys() == {"etcd", "worker", "rank/serve/0", "router"}
    assert one["node"] == "n0"


async def test_status_uses_todays_wall_clock(node, tcp):
    now = time.monotonic()
    node.state = snapshot(view("etcd", Plane.STORE, since=now - 60))
    _, found = await get(tcp, "/status")
    assert found["components"]["etcd"]["since"][:4] == str(time.gmtime(time.time() - 60).tm_year)


async def test_metrics_are_prometheus_text(tcp):
    async with tcp.get("/metrics") as r:
        assert r.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'yrnode_component_up{component="etcd",node="n0",plane="store"} 1.0' in await r.text()


async def test_events_since(node, tcp):
    for i in range(5):
        node.events.emit("etcd", f"e{i}", START)
    code, all_of_them = await get(tcp, "/events")
    assert code == 200
    assert [e["seq"] for e in all_of_them] == [1, 2, 3, 4, 5]
    assert [e["what"] for e in (await get(tcp, "/events?since=3"))[1]] == ["e3", "e4"]
    assert (await get(tcp, "/events?since=5"))[1] == []
    assert (await get(tcp, "/events?since=99"))[1] == []


@pytest.mark.parametrize("query", ["since=x", "since=-1", "since=1e3", "wait=%C2%B2", f"since={'9' * 30}"])
async def test_events_refuses_what_is_no_number(tcp, query):
    code, answer = await get(tcp, f"/events?{query}")
    assert code == 400
    assert "is a whole number" in answer["error"]


async def test_events_wait_returns_with_the_next_one(node, tcp):
    node.events.emit("etcd", "old", START)
    asking = asyncio.create_task(get(tcp, "/events?since=1&wait=30"))
    await until(lambda: node.events._wakers)
    node.events.emit("etcd", "new", START)
    _, found = await asyncio.wait_for(asking, 5)
    assert [e["what"] for e in found] == ["new"]
    assert (await asyncio.wait_for(get(tcp, "/events?since=2&wait=1"), 5))[1] == []
    await until(lambda: not node.events._wakers)


async def test_server_sent_events_replay_and_go_on(node, tcp):
    node.events.emit("etcd", "one", START)
    node.events.emit("etcd", "two", START)
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "1"}
    async with tcp.get("/events", headers=headers) as r:
        assert r.headers["Content-Type"] == "text/event-stream"
        assert await sse(r) == ("2", "two")
        node.events.emit("etcd", "three", Cause(Reason.EXITED, "line\nbreak"))
        assert await sse(r) == ("3", "three")
    await until(lambda: not node.events._wakers)


async def test_streams_are_bounded_and_end_with_the_server(node, api, tcp):
    headers = {"Accept": "text/event-stream"}
    async with contextlib.AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(f"http://127.0.0.1:{api.port}", connector=connector)
        )
        streams = [
            await stack.enter_async_context(session.get("/events", headers=headers)) for _ in range(MOST_STREAMS)
        ]
        code, answer = await get(tcp, "/events", headers=headers)
        assert code == 503
        assert "open already" in answer["error"]
        began = time.monotonic()
        await api.close()
        assert time.monotonic() - began < 3
        with contextlib.suppress(aiohttp.ClientError):
            assert await streams[0].content.read() == b""
    assert not node.events._wakers


async def test_the_page_escapes_what_others_wrote(node, tcp):
    evil = Cause(Reason.EXITED, "<script>alert(1)</script>", '"><img src=x>')
    node.state = snapshot(view("worker", Plane.CACHE, State.BACKOFF, cause=evil))
    node.events.emit("<b>t</b>", "x", evil)
    async with tcp.get("/") as r:
        text = await r.text()
        assert r.content_type == "text/html"
        assert "default-src 'none'" in r.headers["Content-Security-Policy"]
    main = text[text.index("<main") : text.index("</main>")]
    assert "<script" not in main
    assert "<img" not in main
    assert "<b>" not in main
    assert "&lt;script&gt;alert(1)" in main
    assert text.count("<script") == 1
    assert '<noscript><meta http-equiv="refresh"' in text


async def test_logs_names_the_files(tcp):
    code, answer = await get(tcp, "/logs?name=etcd")
    assert code == 200
    assert [p.rsplit("/", 1)[1] for p in answer["paths"]] == ["etcd.log.1", "etcd.log"]
    code, answer = await get(tcp, "/logs?name=nobody")
    assert code == 400
    assert "there are etcd, worker" in answer["error"]


async def test_tcp_has_nothing_that_changes(node, tcp):
    assert {r.method for r in read_app(node).router.routes()} == {"GET", "HEAD"}
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/control/stop", "/status", "/", "/nowhere", "/control/stop/../pause"):
            async with tcp.request(method, path, json={"target": "worker"}) as r:
                assert (r.status, r.headers["Allow"]) == (405, "GET, HEAD")
                assert "Unix socket alone" in (await r.json())["error"]
    assert node.asked == []


async def test_control_by_the_owner(node, unix):
    body = {"target": "worker", "why": "maintenance"}
    async with unix.post("/control/restart", json={**body, "dry_run": True}) as r:
        assert (r.status, (await r.json())["components"]) == (200, ["worker", "rank/serve/0"])
    assert node.asked == []
    async with unix.post("/control/restart", json=body) as r:
        assert (r.status, (await r.json())["done"]) == (200, True)
    verb, target, who, why = node.asked[0]
    assert (verb, target, why) == ("restart", "worker", "maintenance")
    assert who.startswith(pwd.getpwuid(os.geteuid()).pw_name)
    assert f"(uid {os.geteuid()}, pid {os.getpid()}: " in who
    # this very process, whose words under a test runner may be any
    assert who == await Peer(os.getpid(), os.geteuid()).described()


async def test_a_drill_is_said_before_it_is_done(node, unix):
    body = {"target": "worker", "why": "to see"}
    async with unix.post("/control/drill-kill", json={**body, "dry_run": True}) as r:
        assert (r.status, (await r.json())["components"]) == (200, ["worker"])
    assert node.asked == []
    async with unix.post("/control/drill-daemon-kill", json={"target": "yrnode"}) as r:
        assert (r.status, (await r.json())["seq"]) == (200, 1)
    async with unix.post("/control/drill-kill", json=body) as r:
        assert (r.status, (await r.json())["seq"]) == (200, 2)
    assert [(verb, why) for verb, _, _, why in node.asked] == [("drill-daemon-kill", ""), ("drill-kill", "to see")]
    async with unix.post("/control/drill-explode", json=body) as r:
        assert r.status == 404


async def test_a_drain_has_a_timeout_of_its_own(node, unix):
    body = {"target": "n0", "why": "upgrade"}
    async with unix.post("/control/drain", json={**body, "dry_run": True}) as r:
        assert (r.status, (await r.json())["done"]) == (200, False)
    async with unix.post("/control/drain", json=body) as r:
        assert r.status == 200
    async with unix.post("/control/drain", json={**body, "timeout_s": 2.5}) as r:
        assert r.status == 200
    assert node.asked == [("drain", "n0", "300", "upgrade"), ("drain", "n0", "2.5", "upgrade")]


@pytest.mark.parametrize(
    ("verb", "body", "code", "says"),
    [
        ("explode", b"{}", 404, "no such verb"),
        ("stop", b"", 400, "not JSON"),
        ("stop", b"[" * 60000, 400, "not JSON"),
        ("stop", b"[]", 400, "an object"),
        ("stop", b"{}", 400, "target is missing"),
        ("stop", b'{"target": 1}', 400, "target is no str"),
        ("restart", b'{"target": "worker", "why": "\\udcc9\\udcfd"}', 400, "why is not UTF-8"),
        ("drill-kill", b'{"target": "\\ud800"}', 400, "target is not UTF-8"),
        ("stop", b'{"target": "worker", "dry_run": "yes"}', 400, "dry_run is no bool"),
        ("stop", b'{"target": "worker", "force": true}', 400, "an object with target"),
        ("stop", b'{"target": "nobody"}', 400, 'no component or group "nobody"'),
        ("stop", b" " * 70000, 413, ""),
        ("stop", b'{"target": "worker", "timeout_s": 1}', 400, "an object with target"),
        ("drain", b'{"target": "n0", "timeout_s": "5m"}', 400, "no number of seconds"),
        ("drain", b'{"target": "n0", "timeout_s": true}', 400, "no number of seconds"),
        ("drain", b"[]", 400, "an object"),
        ("drain", b'{"target": "n1"}', 400, "this is n0"),
    ],
)
async def test_control_refuses_bad_requests(node, unix, verb, body, code, says):
    async with unix.post(f"/control/{verb}", data=body) as r:
        assert r.status == code
        assert says in (await r.json())["error"]
    assert node.asked == []


async def test_a_request_that_never_ends_is_cut_off(node, unix, monkeypatch):
    monkeypatch.setattr("yrnode.api.control._BODY_S", 0.2)

    async def slowly():
        yield b'{"target": '
        await asyncio.sleep(20)

    async with unix.post("/control/stop", data=slowly()) as r:
        assert r.status == 408


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_client_that_says_nothing_is_cut_off(node, tmp_path, monkeypatch, sent):
    monkeypatch.setattr("yrnode.api.server._IDLE_S", 0.3)
    server = Api(node, "127.0.0.1", 0, tmp_path / "y.sock")
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    finally:
        await server.close()


async def test_a_silent_stream_shows_that_it_lives(tcp, monkeypatch):
    monkeypatch.setattr("yrnode.api.streams.HEARTBEAT_S", 0.5)
    monkeypatch.setattr("yrnode.api.streams.LOOK_S", 0.1)
    async with tcp.get("/events", headers={"Accept": "text/event-stream"}) as r:
        assert (await asyncio.wait_for(r.content.readline(), 5)).startswith(b": ")


_AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def ask(text):
    s = socket.socket(socket.AF_UNIX); s.settimeout(5)
    try:
        s.connect(sys.argv[1])
    except PermissionError:
        return b"closed"
    s.sendall(text.encode()); return s.recv(65536)
body = '{"target": "worker"}'
head = "Host: x\\r\\nConnection: close\\r\\n"
sys.stdout.buffer.write(ask(f"POST /control/stop HTTP/1.1\\r\\n{head}Content-Length: {len(body)}\\r\\n\\r\\n{body}"))
sys.stdout.buffer.write(b"\\n=====\\n" + ask(f"GET /livez HTTP/1.1\\r\\n{head}\\r\\n"))
"""


async def as_nobody(path):
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _AS_NOBODY, str(path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(child.communicate(), 20)
    assert child.returncode == 0, err
    return out.decode().split("\n=====\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_another_user_is_refused(node, short_dir):
    path = short_dir / "y.sock"
    server = Api(node, "127.0.0.1", 0, path)
    await server.start()
    try:
        assert await as_nobody(path) == ["closed", "closed"]
        # even where the file's mode was opened, the kernel's word on the peer counts
        path.chmod(0o666)
        change, read = await as_nobody(path)
        assert change.startswith("HTTP/1.1 403")
        assert f"uid 65534: only root and uid {os.geteuid()} may change anything here; use sudo" in change
        assert read.startswith("HTTP/1.1 200")
        assert node.asked == []
        assert [e.what for e in node.events.since(0)] == ["refused"]
        told = node.events.since(0)[0]
        assert f"refused: POST /control/stop by {pwd.getpwuid(65534).pw_name} (uid 65534, pid " in told.text
    finally:
        await server.close()


@pytest.fixture
def short_dir():
    import shutil
    import tempfile
    from pathlib import Path

    where = Path(tempfile.mkdtemp(prefix="yr"))
    where.chmod(0o755)
    yield where
    shutil.rmtree(where)


async def test_the_socket_is_private_and_goes_with_the_daemon(node, tmp_path):
    path = tmp_path / "run" / "y.sock"
    server = Api(node, "127.0.0.1", 0, path)
    await server.start()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await server.close()
    assert not path.exists()


async def test_a_stale_socket_is_replaced_a_live_one_is_not(node, api, tmp_path):
    live = tmp_path / "run" / "y.sock"
    second = Api(node, "127.0.0.1", 0, live)
    with pytest.raises(UsageError, match="another yrnode answers"):
        await second.start()
    assert live.exists()
    await second.close()
    assert live.exists(), "closing the one that never started removed the other's socket"
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(stale))
    third = Api(node, "127.0.0.1", 0, stale)
    await third.start()
    await third.close()


async def test_a_socket_that_somebody_removes_is_made_anew(node, tmp_path, monkeypatch):
    monkeypatch.setattr("yrnode.api.server.LOOK_S", 0.02)
    run_dir = tmp_path / "run"
    api = Api(node, "127.0.0.1", 0, run_dir / "yrnode.sock")
    await api.start()
    try:
        for _ in range(3):
            shutil.rmtree(run_dir)
            await until((run_dir / "yrnode.sock").exists)
            assert stat.S_IMODE((run_dir / "yrnode.sock").stat().st_mode) == 0o600
            async with aiohttp.ClientSession(
                base_url="http://x", connector=aiohttp.UnixConnector(str(run_dir / "yrnode.sock"))
            ) as unix:
                await until_answered(unix)
        shutil.rmtree(run_dir)
        run_dir.write_text("in the way")
        await asyncio.sleep(0.1)
        run_dir.unlink()
        await until((run_dir / "yrnode.sock").exists)
    finally:
        await api.close()
    assert list(run_dir.iterdir()) == []


async def test_a_socket_that_cannot_be_served_at_once_is_tried_again(node, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("yrnode.api.server.LOOK_S", 0.01)
    path = tmp_path / "run" / "yrnode.sock"
    api = Api(node, "127.0.0.1", 0, path)
    await api.start()
    loop = asyncio.get_running_loop()
    real, refused = loop.create_server, []

    async def create_server(*args, **more):
        if len(refused) < 3:
            refused.append(more["sock"])
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await real(*args, **more)

    monkeypatch.setattr(loop, "create_server", create_server)
    try:
        path.unlink()
        await until(lambda: len(refused) == 3 and path.exists())
        connector = aiohttp.UnixConnector(str(path))
        async with aiohttp.ClientSession(base_url="http://x", connector=connector) as unix:
            await until_answered(unix)
    finally:
        await api.close()
    assert not path.exists()
    assert [s.fileno() for s in refused] == [-1] * 3
    told = [r.getMessage() for r in caplog.records if "control socket" in r.getMessage()]
    assert len(told) == 2, "once that it cannot, once that it is there again"


async def until_answered(unix):
    for _ in range(200):
        with contextlib.suppress(aiohttp.ClientError):
            assert (await get(unix, "/livez"))[0] == 200
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no answer")


async def test_what_is_no_socket_is_left_alone(node, tmp_path):
    path = tmp_path / "y.sock"
    path.write_text("precious")
    with pytest.raises(UsageError, match="is no socket"):
        await Api(node, "127.0.0.1", 0, path).start()
    assert path.read_text() == "precious"


async def test_a_run_dir_that_is_too_long(node, tmp_path):
    with pytest.raises(UsageError, match="longer than the 107 bytes"):
        await Api(node, "127.0.0.1", 0, tmp_path / ("x" * 100) / "y.sock").start()


async def test_a_taken_port_names_its_holder_and_leaves_nothing(node, tmp_path):
    path = tmp_path / "y.sock"
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            await Api(node, "127.0.0.1", port, path).start()
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert f"pid {os.getpid()} (" in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize(("host", "says"), [("192.0.2.1", "no such address"), ("nowhere", "is no address")])
async def test_an_address_that_cannot_be(node, tmp_path, host, says):
    with pytest.raises(UsageError, match=says):
        await Api(node, host, 0, tmp_path / "y.sock").start()


async def test_ipv6(node, tmp_path):
    server = Api(node, "::1", 0, tmp_path / "y.sock")
    try:
        await server.start()
    except UsageError:
        pytest.skip("this machine has no IPv6 loopback")
    async with aiohttp.ClientSession(f"http://[::1]:{server.port}") as session:
        assert (await get(session, "/livez"))[0] == 200
    await server.close()


async def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def sse(response):
    number = (await asyncio.wait_for(response.content.readline(), 5)).decode().strip().removeprefix("id: ")
    data = json.loads((await asyncio.wait_for(response.content.readline(), 5)).decode().removeprefix("data: "))
    assert await response.content.readline() == b"\n"
    return number, data["what"]
