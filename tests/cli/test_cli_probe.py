"""`yrnode probe` as a container runs it every few seconds: quick, without a file, and one line with an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
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
