"""The verbs that talk to a daemon, as a user runs them: real processes against real servers."""

import asyncio
import contextlib
import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.api.fake import START, FakeNode, snapshot, view
from tests.support.etcd import free_port
from yrnode.api.server import Api
from yrnode.cli.main import main
from yrnode.model.cause import Cause, Reason
from yrnode.model.state import Plane, State
from yrnode.process.lock import NodeLock
from yrnode.telemetry.event_file import NAME

YRNODE = (sys.executable, "-m", "yrnode.cli.main")
KILLED = Cause(Reason.EXITED, "killed by signal 9", "\x1b[31mwait status 9")


@pytest.fixture
def node(tmp_path):
    (tmp_path / "state").mkdir()
    found = FakeNode(tmp_path / "state")
    (tmp_path / "log").mkdir()
    found.logs["etcd"] = [tmp_path / "log" / "etcd.log.1", tmp_path / "log" / "etcd.log"]
    return found


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "cluster: lab\n"
        "nodes: {n0: {address: 127.0.0.1}}\n"
        "groups: {serve: {ranks: {n0: 1}, port: 7000, model: m}}\n"
        f'api: {{listen: "127.0.0.1:{free_port()}"}}\n'
        "state_dir: ./state\nrun_dir: ./run\nlog_dir: ./log\n"
    )
    return path


@pytest.fixture
async def api(node, file, tmp_path):
    server = Api(node, "127.0.0.1", port_of(file), tmp_path / "run" / "yrnode.sock")
    await server.start()
    yield server
    await server.close()


def port_of(file):
    return int(file.read_text().split("127.0.0.1:")[1].split('"')[0])


async def started(*args, **more):
    values = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    # a shell starts what it puts into the background with Ctrl-C ignored, and that would be inherited
    values["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    return await asyncio.create_subprocess_exec(*YRNODE, *map(str, args), **values)


async def yrnode(*args):
    """The same in a thread of this process, where the start of an interpreter is not what is tested."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = await asyncio.wait_for(asyncio.to_thread(main, [str(a) for a in args]), 30)
    return code, out.getvalue(), err.getvalue()


async def process(*args, **more):
    child = await started(*args, **more)
    out, err = await asyncio.wait_for(child.communicate(), 30)
    return child.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def following(*args, **more):
    child = await started(*args, **more)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def next_line(child):
    return (await asyncio.wait_for(child.stdout.readline(), 15)).decode().rstrip("\n")


async def test_status_when_ready(file, api):
    code, out, err = await process("status", "--config", file)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("n0 of lab: ready   yrnode 9.9.9, up 1h1m   store answers for ")
    etcd = next(line for line in lines if line.startswith("etcd"))
    assert etcd.split()[1] == "ready"
    assert "11" in etcd.split()
    assert etcd.endswith("proven by health")
    assert any(line.split()[:3] == ["serve", "go", "1"] for line in lines)
    assert "\x1b" not in out


async def test_status_says_what_is_wrong(file, node, api):
    node.state = snapshot(view("worker", Plane.CACHE, State.BACKOFF, cause=KILLED))
    code, out, _ = await yrnode("status", "--config", file)
    assert code == 1
    assert out.splitlines()[0].startswith("n0 of lab: NOT READY")
    assert "  worker is backoff: exited: killed by signal 9 ( [31mwait status 9)" in out.splitlines()
    assert "\x1b" not in out, "another program's output must not move our terminal's cursor"


async def test_status_as_json_is_the_apis(file, node, api):
    code, out, _ = await yrnode("status", "-o", "json", "--config", file)
    assert code == 0
    assert json.loads(out)["components"]["worker"]["state"] == "ready"


async def test_status_without_the_socket_asks_tcp(file, api, tmp_path):
    (tmp_path / "run" / "yrnode.sock").rename(tmp_path / "run" / "away")
    code, out, _ = await yrnode("status", "--config", file)
    assert (code, out[:16]) == (0, "n0 of lab: ready")


async def test_another_clusters_daemon_is_not_ours(file, api, tmp_path):
    (tmp_path / "run" / "yrnode.sock").rename(tmp_path / "run" / "away")
    file.write_text(file.read_text().replace("cluster: lab", "cluster: other"))
    code, out, err = await yrnode("status", "--config", file)
    assert (code, out) == (1, "")
    assert "lab/n0 answers instead" in err


async def test_a_file_with_faults_still_finds_the_daemon(file, api):
    file.write_text(file.read_text() + "surprise: 1\n")
    code, out, err = await yrnode("status", "--config", file)
    assert code == 0
    assert out.startswith("n0 of lab: ready")
    assert "surprise" in err
    code, _, err = await yrnode("check", "--config", file)
    assert code == 2
    assert "surprise" in err


async def test_no_daemon_is_one_line_with_the_cure(file):
    for verb in (("status",), ("events",), ("stop", "all", "--yes")):
        code, out, err = await process(*verb, "--config", file)
        assert (code, out) == (1, "")
        assert len(err.splitlines()) == 1
        assert "yrnode does not run on n0" in err
        assert f"yrnode run --config {file}" in err


async def test_a_daemon_without_its_socket_is_not_said_to_be_down(file, tmp_path):
    with NodeLock(tmp_path / "state"):
        for verb in (("status",), ("stop", "all", "--yes")):
            code, out, err = await process(*verb, "--config", file)
            assert (code, out) == (1, "")
            assert f"yrnode runs on n0 (pid {os.getpid()}), but its control socket" in err
            assert "is gone" in err
    assert "does not run" in (await process("status", "--config", file))[2]


async def test_a_daemon_that_hangs_is_said_so(file, tmp_path):
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "run" / "yrnode.sock"))
        s.listen()
        began = time.monotonic()
        code, out, _ = await yrnode("probe", "live", "--config", file)
        assert (code, "does not answer in time" in out) == (1, True)
        assert time.monotonic() - began < 10


async def test_status_watch_goes_on_until_ctrl_c(file, node, api):
    async with following("status", "--watch", "-o", "json", "--config", file) as child:
        assert json.loads(await next_line(child))["ready"] is True
        node.state = snapshot(view("worker", Plane.CACHE, State.FAILED))
        while json.loads(await next_line(child))["ready"]:
            pass
        await api.close()
        while "error" not in json.loads(await next_line(child)):
            pass
        child.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(child.wait(), 10) == 0
        assert await child.stderr.read() == b""


async def test_status_watch_in_a_pipe_tells_only_what_changes(file, node, api):
    async with following("status", "--watch", "--config", file) as child:
        first = [await next_line(child) for _ in range(7)]
        assert [line.partition(" ")[2] for line in first] == [
            "n0: ready",
            "store: answers",
            "etcd: ready",
            "worker: ready",
            "rank/serve/0: ready",
            "router: ready",
            "group serve: generation 1 go ready",
        ]
        node.state = snapshot(view("worker", Plane.CACHE, State.BACKOFF, cause=KILLED))
        assert (await next_line(child)).endswith(" n0: NOT READY")
        assert " worker: backoff: exited: killed by signal 9" in await next_line(child)
        await api.close()
        assert " yrnode: no answer: yrnode does not run on n0" in await next_line(child)


async def test_events_as_text_and_json(file, node, api):
    for i in range(60):
        node.events.emit("worker", f"e{i}", KILLED, instance="w1", generation=2)
    code, out, _ = await yrnode("events", "--config", file)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 50
    assert lines[-1].endswith(
        "+00:00 #60 worker: e59: killed by signal 9 [ [31mwait status 9] generation=2 instance=w1"
    )
    _, out, _ = await yrnode("events", "-n", "2", "-o", "json", "--config", file)
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [59, 60]
    _, out, _ = await yrnode("events", "--since", "57", "-o", "json", "--config", file)
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [58, 59, 60]
    for future in ("60", "61", "999"):
        assert await yrnode("events", "--since", future, "-o", "json", "--config", file) == (0, "", "")


async def test_events_follow_over_a_restart_of_the_daemon(file, node, api, tmp_path):
    node.events.emit("etcd", "one", START)
    async with following("events", "-f", "-o", "json", "--config", file) as child:
        assert json.loads(await next_line(child))["what"] == "one"
        node.events.emit("etcd", "two", START)
        assert json.loads(await next_line(child))["what"] == "two"
        await api.close()
        node.events.emit("etcd", "meanwhile", START)
        again = Api(node, "127.0.0.1", port_of(file), tmp_path / "run" / "yrnode.sock")
        await again.start()
        try:
            assert json.loads(await next_line(child))["what"] == "meanwhile"
        finally:
            await again.close()


async def test_events_of_a_dead_daemon_come_from_its_file(file, node):
    node.events.emit("etcd", "last words", START)
    assert (file.parent / "state" / NAME).exists()
    code, out, err = await yrnode("events", "--config", file)
    assert code == 0
    assert "#1 etcd: last words" in out
    assert "does not run" in err


async def test_logs_over_rotations(file, node, api, tmp_path):
    old, new = node.logs["etcd"]
    old.write_text("".join(f"old {i}\n" for i in range(20_000)))
    new.write_text("new 0\nnew 1\n")
    code, out, _ = await yrnode("logs", "etcd", "-n", "4", "--config", file)
    assert (code, out.splitlines()) == (0, ["old 19998", "old 19999", "new 0", "new 1"])
    _, out, _ = await yrnode("logs", "etcd", "-n", "15000", "--config", file)
    assert out.splitlines()[0] == "old 5002"
    assert len(out.splitlines()) == 15_000
    await api.close()
    code, out, _ = await yrnode("logs", "etcd", "-n", "3", "--config", file)
    assert (code, out.splitlines()) == (0, ["old 19999", "new 0", "new 1"])


async def test_logs_follow_a_file_that_is_truncated_and_then_replaced(file, node, api):
    _, path = node.logs["etcd"]
    path.write_text("one\ntwo\n")
    async with following("logs", "-f", "etcd", "-n", "1", "--config", file) as child:
        assert await next_line(child) == "two"
        with path.open("a") as f:
            f.write("three\nfo")
        assert await next_line(child) == "three"
        with path.open("a") as f:
            f.write("ur\n")
        assert await next_line(child) == "four"
        path.write_text("five\n")
        assert await next_line(child) == "five"
        path.rename(path.with_name("etcd.log.1"))
        path.write_text("six\n")
        assert await next_line(child) == "six"


async def test_logs_of_nobody(file, node, api):
    code, out, err = await yrnode("logs", "etc", "--config", file)
    assert (code, out) == (2, "")
    assert "there are etcd, worker" in err
    code, _, err = await yrnode("logs", "etcd", "--config", file)
    assert code == 1
    assert "etcd has written nothing" in err


async def test_control_says_the_blast_radius_and_needs_a_yes(file, node, api):
    code, out, err = await process("restart", "worker", "--config", file)
    assert code == 2
    assert out == "restart worker: restarts worker, rank/serve/0; leaves etcd, router\n"
    assert "add --yes" in err
    assert node.asked == []
    code, out, _ = await yrnode("restart", "worker", "--yes", "--why", "new disk", "--config", file)
    assert code == 0
    assert "taken" in out
    assert [(v, t, why) for v, t, _, why in node.asked] == [("restart", "worker", "new disk")]


async def test_control_as_json_and_dry(file, node, api):
    code, out, _ = await yrnode("stop", "worker", "--dry-run", "-o", "json", "--config", file)
    assert (code, json.loads(out)["done"], node.asked) == (0, False, [])
    code, out, _ = await yrnode("stop", "worker", "--yes", "-o", "json", "--config", file)
    assert (code, json.loads(out)["done"], len(node.asked)) == (0, True, 1)
    code, out, _ = await yrnode("stop", "idle", "--config", file)
    assert (code, out, len(node.asked)) == (0, "stop idle: nothing to do\n", 1)
    code, _, err = await yrnode("stop", "nobody", "--yes", "--config", file)
    assert (code, len(node.asked)) == (2, 1)
    assert 'no component or group "nobody"' in err


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "pause", "resume"])
async def test_no_verb_changes_anything_unasked(file, node, api, verb):
    code, out, err = await process(verb, "worker", "--config", file)
    assert (code, node.asked) == (2, [])
    assert out.startswith(f"{verb} worker: ")
    assert err == f"{verb} worker: nobody is there to ask; add --yes\n"
    assert (await yrnode(verb, "worker", "--yes", "--config", file))[0] == 0
    assert [asked[:2] for asked in node.asked] == [(verb, "worker")]


@pytest.mark.parametrize(("answer", "code", "asked"), [("y", 0, 1), ("n", 1, 0), ("", 1, 0)])
async def test_control_asks_on_a_terminal(file, node, api, answer, code, asked):
    ours, theirs = pty.openpty()
    try:
        child = await started("start", "worker", "--config", file, stdin=theirs)
        os.close(theirs)
        assert await next_line(child) == "start worker: starts worker, rank/serve/0; leaves etcd, router"
        os.write(ours, f"{answer}\n".encode())
        _, err = await asyncio.wait_for(child.communicate(), 15)
        assert (child.returncode, len(node.asked)) == (code, asked)
        assert b"Go on? [y/N]" in err
    finally:
        os.close(ours)


async def test_probe(file, node, api):
    assert (await yrnode("probe", "live", "--config", file))[:2] == (0, "live\n")
    assert (await yrnode("probe", "ready", "--config", file))[:2] == (0, "ready\n")
    node.state = snapshot(view("worker", Plane.CACHE, State.BACKOFF, cause=KILLED))
    assert (await yrnode("probe", "live", "--config", file))[0] == 0, "healing is live"
    code, out, _ = await yrnode("probe", "ready", "-o", "json", "--config", file)
    assert (code, json.loads(out)["ready"]) == (1, False)
    node.state = snapshot(view("worker", Plane.CACHE, State.FAILED, cause=KILLED))
    code, out, _ = await yrnode("probe", "live", "--config", file)
    assert code == 1
    assert out.startswith("not live: worker is failed: exited: killed by signal 9")
    node.state, node.beating = snapshot(), False
    assert (await yrnode("probe", "live", "--config", file))[0] == 1
    await api.close()
    assert (await yrnode("probe", "live", "--config", file))[0] == 1


async def test_a_closed_pipe_leaves_no_traceback(file, node, api):
    for i in range(1500):
        node.events.emit("worker", f"e{i}", Cause(Reason.EXITED, "x" * 200))
    read, write = os.pipe()
    child = await started("events", "--since", "0", "--config", file, stdout=write)
    os.close(write)
    await asyncio.to_thread(os.read, read, 10)
    os.close(read)
    _, err = await asyncio.wait_for(child.communicate(), 15)
    assert (child.returncode, err) == (1, b"")


@pytest.mark.parametrize(
    "words", [("logs", "-f", "etcd"), ("events", "-f"), ("status", "--watch")], ids=lambda w: w[0]
)
async def test_who_follows_ends_with_his_reader_though_nothing_is_written(file, node, api, words):
    node.logs["etcd"][1].write_text("one\n")
    node.events.emit("etcd", "one", START)
    read, write = os.pipe()
    child = await started(*words, "--config", file, stdout=write)
    os.close(write)
    assert await asyncio.to_thread(os.read, read, 1000)
    os.close(read)
    _, err = await asyncio.wait_for(child.communicate(), 10)
    assert (child.returncode, err) == (1, b"")


async def test_following_from_a_number_that_is_not_there_yet(file, node, api):
    node.events.emit("etcd", "one", START)
    async with following("events", "-f", "--since", "2", "-o", "json", "--config", file) as child:
        await until_streamed(node)
        for what in ("two", "three"):
            node.events.emit("etcd", what, START)
        assert json.loads(await next_line(child))["what"] == "three"


async def until_streamed(node):
    end = time.monotonic() + 10
    while not node.events._wakers:
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_no_proxy_is_asked(file, api, tmp_path):
    (tmp_path / "run" / "yrnode.sock").rename(tmp_path / "run" / "away")
    env = {**os.environ, "http_proxy": "http://127.0.0.1:9", "all_proxy": "http://127.0.0.1:9"}
    assert (await process("status", "--config", file, env=env))[0] == 0
