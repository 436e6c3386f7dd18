"""Set here, get there: what is counted, and that whatever happens nothing is left. The real SDK is another test's."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from tests.process.lab import gone
from tests.support.etcd import free_port
from yrnode.checks import kv_pair
from yrnode.checks.kv_pair import PREFIX, Ask, Broken, Size, latencies, measure, too_much

# Stands in for the interpreter and the SDK: a key is a file.
FAKE = """#!{python} -S
import hashlib, json, os, sys, time
here = {here!r}
with open(here + "/pids", "a") as f:
    f.write(f"{{os.getpid()}}\\n")
def answer(**facts):
    print(json.dumps(facts), flush=True)
answer(hello=True)
for line in sys.stdin:
    request = json.loads(line)
    what = next(iter(request))
    key = request[what]
    n = int(key.rpartition("-")[2]) if isinstance(key, str) else -1
    path = os.path.join(here, "store", str(key)[:200])
    {body}
    if what == "set":
        value = os.urandom(request["size"])
        with open(path, "wb") as f:
            f.write(value)
        answer(s=0.001, digest=hashlib.sha256(value).hexdigest())
    elif what == "get":
        with open(path, "rb") as f:
            answer(s=0.002, digest=hashlib.sha256(f.read()).hexdigest())
    elif what == "delete":
        for one in key:
            os.path.exists(os.path.join(here, "store", one)) and os.unlink(os.path.join(here, "store", one))
        answer(left=0)
    else:
        answer()
"""


class Lab:
    def __init__(self, where: Path, address: str) -> None:
        self.where, self.address = where, address
        (where / "store").mkdir()

    def ask(self, body: str = "pass", count: int = 10, sizes: tuple[int, ...] = (100,), at_once: int = 1) -> Ask:
        script = self.where / "python"
        script.write_text(FAKE.format(python=sys.executable, here=str(self.where), body=body.replace("\n", "\n    ")))
        script.chmod(0o700)
        env = {"PATH": os.defpath}
        log = self.where / "log" / "helper.log"
        return Ask(self.address, self.address, sizes, count, at_once, str(script), env, log)

    @property
    def stored(self) -> list[str]:
        return os.listdir(self.where / "store")

    @property
    def pids(self) -> list[int]:
        path = self.where / "pids"
        return [int(x) for x in path.read_text().split()] if path.exists() else []


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Nothing in the store and no process outlives the test."""
    port = free_port()
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    found = Lab(tmp_path, f"127.0.0.1:{port}")
    before = len(os.listdir("/proc/self/fd"))
    yield found
    assert found.stored == []
    assert all(gone(pid) for pid in found.pids)
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= before
    server.close()


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_all_come_back(lab: Lab) -> None:
    (small, large), left = await measure(lab.ask(sizes=(10, 1000)))
    assert (small.good, small.hits, large.size, large.hits, left) == (True, 10, 1000, 10, 0)
    assert small.as_dict()["set_ms"] == {"p50": 1.0, "p99": 1.0}
    assert small.as_dict()["get_ms"] == {"p50": 2.0, "p99": 2.0}
    assert len(lab.pids) == 1


async def test_several_at_once_are_several_processes(lab: Lab) -> None:
    (found,), _ = await measure(lab.ask(at_once=3))
    assert (found.good, found.hits, len(lab.pids)) == (True, 10, 3)
    (found,), _ = await measure(lab.ask(at_once=3, count=2))
    assert (found.good, len(lab.pids)) == (True, 5), "and never more than keys"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if what == 'get' and n < 3: answer(s=0.1, digest=None); continue", (7, 3, 0, 0)),
        ("if what == 'get' and n < 4: answer(s=0.1, digest='other'); continue", (6, 0, 4, 0)),
        ("if what == 'get' and n < 2: answer(error='RPC unavailable'); continue", (8, 0, 0, 2)),
        ("if what == 'set' and n < 5: answer(error='Out of memory'); continue", (5, 0, 0, 5)),
    ],
    ids=("missed", "differ", "get fails", "set fails"),
)
async def test_what_does_not_come_back(lab: Lab, body: str, expected: tuple[int, ...]) -> None:
    (found,), left = await measure(lab.ask(body))
    assert (found.hits, found.missed, found.differ, found.failed) == expected
    assert (found.good, left) == (False, 0)
    assert bool(found.error) == bool(found.failed)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("if what == 'get' and n == 3: sys.exit()", "ended in the middle of a call"),
        ("if what == 'get' and n == 3: time.sleep(60)", "has not come back from a call"),
        ("if what == 'connect': answer(error='RPC unavailable'); continue", "no connection: RPC unavailable"),
    ],
    ids=("dies", "hangs", "no connection"),
)
@pytest.mark.parametrize("at_once", [1, 3])
async def test_a_helper_that_fails_ends_it_and_its_keys_are_deleted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, body: str, words: str, at_once: int
) -> None:
    monkeypatch.setattr(kv_pair, "CALL_S", 1.5)
    with pytest.raises(Broken, match=words):
        await measure(lab.ask(body, at_once=at_once))


@pytest.mark.parametrize("at_once", [1, 3])
async def test_interrupted_in_the_middle(lab: Lab, at_once: int) -> None:
    task = asyncio.create_task(measure(lab.ask("if what == 'get' and n > 5: time.sleep(1)", at_once=at_once)))
    await until(lambda: len(lab.stored) == 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_does_not_go_on_for_ever(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_pair, "LONGEST_S", 1.0)
    with pytest.raises(Broken, match="not done within 1 s"):
        await measure(lab.ask("time.sleep(0.2)", count=1000))


async def test_keys_that_cannot_be_deleted_are_counted(lab: Lab) -> None:
    (found,), left = await measure(lab.ask("if what == 'delete': answer(error='no'); continue"))
    assert (found.good, left) == (True, 10)
    for name in lab.stored:
        assert name.startswith(PREFIX)
        (lab.where / "store" / name).unlink()


async def test_nobody_listens(lab: Lab) -> None:
    lab.address = f"127.0.0.1:{free_port()}"
    with pytest.raises(Broken, match=f"no worker answers on {lab.address}: Connection refused"):
        await measure(lab.ask())
    assert lab.pids == []


async def test_a_python_without_the_sdk(lab: Lab) -> None:
    ask = lab.ask()
    Path(ask.python).write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    with pytest.raises(Broken, match=r"SDK cannot be loaded by .*: No module named 'yr'"):
        await measure(ask)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_latencies_are_values_that_were_measured(seconds: list[float]) -> None:
    found = latencies(seconds)
    values = [round(1000 * x, 3) for x in seconds]
    assert found["p50"] is not None
    assert found["p99"] is not None
    assert found["p50"] in values
    assert found["p99"] in values
    assert min(values) <= found["p50"] <= found["p99"] <= max(values)
    assert sum(v <= found["p50"] for v in values) >= len(values) / 2
    assert sum(v <= found["p99"] for v in values) >= 0.99 * len(values)


def test_latencies_by_hand() -> None:
    assert latencies([n / 1000 for n in range(1, 101)]) == {"p50": 50.0, "p99": 99.0}
    assert latencies([0.007]) == {"p50": 7.0, "p99": 7.0}
    assert latencies([]) == {"p50": None, "p99": None}
    assert not Size(1, 2, hits=1).good


@pytest.mark.parametrize(
    ("sizes", "count", "fits"), [((1 << 20,), 64, True), ((1 << 20,), 65, False), ((1 << 20, 1), 64, False)]
)
def test_a_quarter_of_the_memory_and_no_more(sizes: tuple[int, ...], count: int, fits: bool) -> None:
    assert (too_much(sizes, count, 256 << 20) == "") is fits
