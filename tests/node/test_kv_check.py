"""`yrnode kv-check` and `yrnode cache --all` on a live cluster: a real etcd and two real workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import YrCluster, cluster, cluster_of
from tests.support.node import BIN
from tests.support.serving import ask, url
from yrnode.checks import kv_pair
from yrnode.checks.kv_pair import PREFIX, Ask, measure
from yrnode.config.layout import worker_address
from yrnode.config.load import load

EXIST = """
import sys
from yr.datasystem import KVClient
host, _, port = sys.argv[1].rpartition(":")
client = KVClient(host, int(port), connect_timeout_ms=5000, req_timeout_ms=5000)
client.init()
print(sum(client.exist(sys.argv[2:])), flush=True)
import os
os._exit(0)
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[YrCluster]:
    with cluster(cluster_of(2), 2) as found:
        found.wait_ready()
        yield found


def there(address: str, keys: list[str]) -> int:
    done = subprocess.run(
        [sys.executable, "-c", EXIST, address, *keys], capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout.split()[-1])


def test_from_one_node_to_the_other_and_back(lab: YrCluster) -> None:
    done = lab["n0"].cli("kv-check", "--count", "8", "--sizes", "4KB,256KB", "--concurrency", "2", "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["good"], found["same_worker"], found["not_deleted"]) == (0, True, False, 0)
    assert (found["from"], found["to"]) == ("n0", "n1")
    assert [(s["size"], s["keys"], s["hits"]) for s in found["sizes"]] == [(4096, 8, 8), (256 << 10, 8, 8)]
    assert all(0 < s[k]["p50"] <= s[k]["p99"] for s in found["sizes"] for k in ("set_ms", "get_ms"))
    done = lab["n0"].cli("kv-check", "--from", "n1", "--to", "n0", "--count", "2", "--sizes", "1KB")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("set on n1, got on n0\n")


def test_one_worker_is_said_to_be_one(lab: YrCluster) -> None:
    done = lab["n1"].cli("kv-check", "--to", "n1", "--count", "2", "--sizes", "1KB")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one worker" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "n9"), "there is no such node; known: n0, n1"),
        (("--sizes", "1MB", "--count", "65"), "more than a quarter of the worker's 256 MB"),
        (("--sizes", "1MB,"), "--sizes"),
        (("--sizes", "0B"), "at least 1B"),
        (("--sizes", "1KB,1024B"), "different sizes"),
        (("--count", "0"), "write 1 or more"),
        (("--concurrency", "33"), "write 1 to 32"),
    ],
)
def test_usage(lab: YrCluster, words: tuple[str, ...], said: str) -> None:
    done = lab["n0"].cli("kv-check", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_hit_rates_of_all_nodes(lab: YrCluster) -> None:
    """What one rank finds that the other has stored is counted by its own daemon, and summed."""
    first, other = url(lab["n0"], "rank/serve/0"), url(lab["n1"], "rank/serve/1")

    def told() -> dict[str, Any]:
        prompt = " ".join(f"{time.time_ns()}-{i}" for i in range(100))
        for server in (first, other):
            ask(server, 20, prompt=prompt)
        found: dict[str, Any] = json.loads(lab["n1"].cli("cache", "--all", "-o", "json").stdout)
        return found if found["all"]["tokens"]["total"]["external_hits"] else {}

    found = lab.wait("hits", told, 60)
    assert list(found["nodes"]) == ["n0", "n1"]
    rows = {rank: row for node in found["nodes"].values() for rank, row in node["ranks"].items()}
    assert list(rows) == ["rank/serve/0", "rank/serve/1"]
    for tier in ("local_queries", "external_hits"):
        assert found["all"]["tokens"]["total"][tier] == sum(r["tokens"]["total"][tier] for r in rows.values())
    assert 0 < found["all"]["eff_total"] < 1


def test_whoever_interrupts_it_leaves_no_key(lab: YrCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_pair.secrets, "token_hex", lambda _: "interrupted")
    own = load(lab["n0"].config)
    setter, getter = worker_address(own, "n0"), worker_address(own, "n1")
    env = {**os.environ, "DATASYSTEM_CLIENT_LOG_DIR": str(tmp_path)}
    ask = Ask(setter, getter, (4096,), 4000, 2, sys.executable, env, tmp_path / "helper.log")
    keys = [f"{PREFIX}interrupted-4096-{i}" for i in range(400)]

    async def interrupted() -> int:
        task = asyncio.create_task(measure(ask))
        deadline = time.monotonic() + 30
        while not (found := await asyncio.to_thread(there, getter, keys)):
            assert time.monotonic() < deadline
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return found

    assert asyncio.run(interrupted()) > 0, "the keys are those that it sets"
    assert there(getter, keys) == there(setter, keys) == 0


def test_a_helper_whose_parent_is_killed_deletes_its_keys(lab: YrCluster, tmp_path: Path) -> None:
    own = load(lab["n0"].config)
    setter, getter = worker_address(own, "n0"), worker_address(own, "n1")
    keys = [f"{PREFIX}orphan-{i}" for i in range(3)]
    argv = [sys.executable, str(kv_pair.HELPER), setter, getter, "5000", "60"]
    env = {**os.environ, "DATASYSTEM_CLIENT_LOG_DIR": str(tmp_path)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"hello": True}
        for request in ({"connect": True}, *({"set": key, "size": 100} for key in keys)):
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            assert "error" not in json.loads(child.stdout.readline())
        assert there(getter, keys) == 3
        child.stdin.close()
        assert child.wait(30) == 0
    assert there(getter, keys) == there(setter, keys) == 0


def test_ctrl_c(lab: YrCluster) -> None:
    argv = [str(BIN / "yrnode"), "kv-check", "--config", str(lab["n0"].config), "--node", "n0"]
    argv += ["--count", "15000", "--sizes", "1KB"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        lab.wait("its helper", lambda: children.read_text().split(), 30)
        # as a terminal does: to all of its processes
        os.killpg(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        assert (child.returncode, out) == (130, b"")
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)
    finally:
        child.kill()
        child.wait()
