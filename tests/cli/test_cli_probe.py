"""`yrnode probe` as a container runs it every few seconds: quick, without a file, and one line with an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import io
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.api.fake import FakeNode, snapshot, view
from tests.cli.test_cli_daemon import KILLED, yrnode
from tests.cli.test_cli_daemon import api as api  # noqa: PLC0414  a fixture
from tests.cli.test_cli_daemon import file as file  # noqa: PLC0414  a fixture
from tests.cli.test_cli_daemon import node as node  # noqa: PLC0414  a fixture
from yrnode.api.server import Api
from yrnode.cli.main import main
from yrnode.model.state import Plane, State

QUICK_S = 0.3
DEAD = "not live: yrnode does not run on "


async def probe(*words: object, **env: str) -> tuple[int, str, float]:
    """Exit code, what it said, and the CPU seconds that it took: what else runs here is not what is measured."""

    def run() -> tuple[int, str, float]:
        argv = [sys.executable, "-m", "yrnode.cli.main", "probe", *map(str, words)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **env}) as c:
            assert c.stdout is not None
            said = c.stdout.read().decode()
            _, status, used = os.wait4(c.pid, 0)
            c.returncode = os.waitstatus_to_exitcode(status)
        return c.returncode, said, used.ru_utime + used.ru_stime

    return await asyncio.to_thread(run)


async def test_it_is_quick_and_loads_no_more_than_it_needs(file: Path, api: Api) -> None:
    runs = [await probe("live", "--config", file) for _ in range(3)]
    assert {r[:2] for r in runs} == {(0, "live\n")}
    assert min(r[2] for r in runs) < QUICK_S
    code = "import sys; from yrnode.cli.main import main; main(sys.argv[1:]); "
    code += "print([m for m in ('pydantic', 'ruamel', 'aiohttp', 'asyncio', 'psutil') if m in sys.modules])"
    argv = [sys.executable, "-c", code, "probe", "ready", "--config", str(file)]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "ready\n[]\n"


async def test_a_file_that_only_a_proper_look_can_read(file: Path, api: Api) -> None:
    file.write_text(file.read_text().replace("run_dir: ./run", 'run_dir: "./run"'))
    assert (await probe("ready", "--config", file))[:2] == (0, "ready\n")


async def test_a_daemon_whose_socket_was_removed_is_asked_over_tcp(file: Path, api: Api, tmp_path: Path) -> None:
    (tmp_path / "run" / "yrnode.sock").rename(tmp_path / "run" / "away")
    assert (await yrnode("probe", "live", "--config", file))[0] == 0


async def test_every_way_not_to_be_good_is_1_with_one_line(file: Path, node: FakeNode, api: Api) -> None:
    both = [view(name, Plane.CACHE, State.FAILED, cause=KILLED) for name in ("worker", "etcd")]
    node.state = snapshot(*both)
    for what in ("live", "ready"):
        code, said, _ = await probe(what, "--config", file)
        assert (code, said.count("\n")) == (1, 1)
        assert said.startswith(f"not {what}: ")
        assert "worker" in said
    await api.close()
    code, said, _ = await probe("live", "--config", file)
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith(DEAD)


def said(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        return main(["probe", *words]), out.getvalue()


def test_without_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a daemon that was given its file in another way, or in an image without one."""
    monkeypatch.setattr("yrnode.config.files.DEFAULT_FILE", str(tmp_path / "none.yaml"))
    monkeypatch.setattr("yrnode.config.files.DEFAULT_RUN_DIR", tmp_path / "run")
    monkeypatch.delenv("YRNODE_CONFIG", raising=False)
    monkeypatch.delenv("YRNODE_NODE", raising=False)
    code, line = said("live")
    assert code == 1
    assert line.startswith(DEAD)

    async def beside_a_daemon() -> tuple[int, str]:
        server = Api(FakeNode(tmp_path), "127.0.0.1", 0, tmp_path / "run" / "yrnode.sock")
        await server.start()
        try:
            return await asyncio.to_thread(said, "live", "-o", "json")
        finally:
            await server.close()

    code, line = asyncio.run(beside_a_daemon())
    assert (code, json.loads(line)) == (0, {"live": True, "reasons": []})


class Canned(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers each path with a code and an object, or not at all while it lives."""

    daemon_threads = True

    def __init__(self, path: Path, answers: dict[str, tuple[int, object] | None]) -> None:
        self.answers, self.over = answers, threading.Event()
        super().__init__(str(path), _Answer)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        # the handler wants an address
        return super().get_request()[0], ("local", 0)


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.server.answers[self.path]  # type: ignore[attr-defined]
        if found is None:
            self.server.over.wait(30)  # type: ignore[attr-defined]
            return
        body = json.dumps(found[1]).encode()
        self.send_response(found[0])
        self.send_header("Yrnode-Node", "lab/n0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


BUSY = (429, {"error": "too many requests at once; try again"})
CROWDED = (503, {"error": "128 connections are open already"})
ALIVE, HUNG = (200, {"alive": True}), (503, {"alive": False})
GOOD = (200, {"components": {"worker": {"state": "ready", "reason": ""}}})
FAILED = (200, {"components": {"worker": {"state": "failed", "reason": "exited"}}})


@pytest.mark.parametrize(
    ("livez", "status", "code"),
    [
        (ALIVE, GOOD, 0),
        (ALIVE, FAILED, 1),
        (HUNG, GOOD, 1),
        (BUSY, BUSY, 0),
        (CROWDED, CROWDED, 0),
        (CROWDED, GOOD, 0),
        (BUSY, FAILED, 1),
        (ALIVE, BUSY, 0),
        (ALIVE, (500, {"error": "a fault of yrnode's own: see its log"}), 0),
        (ALIVE, None, 0),
        (None, GOOD, 1),
    ],
)
def test_who_is_busy_is_alive(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    livez: tuple[int, object] | None,
    status: tuple[int, object] | None,
    code: int,
) -> None:
    monkeypatch.setattr("yrnode.config.files.DEFAULT_FILE", str(tmp_path / "none.yaml"))
    monkeypatch.setattr("yrnode.config.files.DEFAULT_RUN_DIR", tmp_path)
    monkeypatch.setattr("yrnode.cli.probe._TIMEOUT_S", 0.5)
    with Canned(tmp_path / "yrnode.sock", {"/livez": livez, "/status": status}) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            found = said("live")
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
    assert (found[0], found[1].startswith("not live: ")) == (code, bool(code)), found


def test_a_daemon_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yrnode.config.files.DEFAULT_FILE", str(tmp_path / "none.yaml"))
    monkeypatch.setattr("yrnode.config.files.DEFAULT_RUN_DIR", tmp_path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "yrnode.sock"))
        silent.listen()
        began = time.monotonic()
        code, line = said("live")
        assert (code, "does not answer in time" in line) == (1, True)
        assert time.monotonic() - began < 5
