"""Before a start: what is ours goes, what is not ours stops the start with its name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.lab import PATH, gone, until
from tests.support.etcd import free_port
from yrnode.model.cause import Cause, Reason
from yrnode.model.spec import ComponentSpec, PortNeed
from yrnode.model.state import Plane
from yrnode.process import table
from yrnode.process.launch import Owner
from yrnode.residue import orphans
from yrnode.residue.clear import clear


def owner(home: Path) -> Owner:
    return Owner("c/n0", home, home / "run")


def spec(home: Path, port: int, *stale: Path) -> ComponentSpec:
    return ComponentSpec(
        "worker",
        "worker",
        Plane.CACHE,
        ("true",),
        {},
        home / "worker",
        home / "worker.log",
        stop_grace_s=0.3,
        ports=(PortNeed("127.0.0.1", port, "datasystem.port"),),
        stale=stale,
    )


async def test_nothing_in_the_way(tmp_path: Path) -> None:
    assert await clear(spec(tmp_path, free_port()), owner(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


HOLD = """
import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
time.sleep(60)
"""


async def test_an_orphan_with_the_port_is_ended_and_its_files_go(tmp_path: Path) -> None:
    port, liveness = free_port(), tmp_path / "worker/liveness"
    liveness.parent.mkdir()
    liveness.write_text("liveness check success")
    env = {**PATH, "YRNODE_INSTANCE": "c/n0/worker/1", "YRNODE_HOME": str(tmp_path)}
    argv = [sys.executable, "-S", "-c", HOLD, str(port)]
    with subprocess.Popen(argv, env=env, cwd=liveness.parent, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        noted: list[tuple[str, int]] = []
        note = lambda kind, count: noted.append((kind.value, count))  # noqa: E731
        assert await clear(spec(tmp_path, port, liveness), owner(tmp_path), note=note) is None
        await until(lambda: gone(child.pid))
    assert not liveness.exists()
    assert noted == [("process", 1), ("file", 1), ("memory", 0)]


async def test_a_strangers_port_blocks_with_his_name_and_the_cure(tmp_path: Path) -> None:
    stale = tmp_path / "liveness"
    stale.write_text("x")
    with socket.create_server(("127.0.0.1", free_port())) as s:
        port = s.getsockname()[1]
        found = await clear(spec(tmp_path, port, stale), owner(tmp_path))
    assert found is not None
    assert (found.reason, found.component) == (Reason.RESIDUE, "worker")
    assert found.text == (
        f"port 127.0.0.1:{port} (datasystem.port) is not free: end its holder or change datasystem.port"
    )
    assert found.evidence.startswith(f"in use by pid {os.getpid()} (")
    assert stale.exists(), "files of somebody who may still run are left alone"


async def test_an_orphan_that_cannot_be_ended_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = table.Proc(7, "worker", "D", 1, 7, 7, 1)

    async def stays(look: Callable[[], list[table.Proc]], grace_s: float) -> list[table.Proc]:
        return [proc]

    monkeypatch.setattr(orphans, "marks", lambda prefix, home: {f"{prefix}worker/1"})
    monkeypatch.setattr(orphans, "end_all", stays)
    found = await clear(spec(tmp_path, free_port()), owner(tmp_path))
    assert found == Cause(Reason.RESIDUE, "an earlier instance cannot be ended", "pid 7 (worker, state D)", "worker")


async def test_what_cannot_be_removed_blocks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = await clear(spec(tmp_path, free_port(), tmp_path / "file/x"), owner(tmp_path))
    assert found is not None
    assert found.text == "what an earlier instance left cannot be removed"
    assert found.evidence.endswith(": Not a directory")
