"""The KV probe with helpers that answer, refuse, lie, hang and die. The real SDK is another test's."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.checks.conftest import TARGET, tools
from tests.process.lab import gone
from yrnode.checks.kv import HELPER, KvCheck
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict

# Stands in for the interpreter; its arguments are the helper program, host, port and milliseconds.
FAKE = """#!{python} -S
import json, os, sys, time
here = {here!r}
with open(here + "/pids", "a") as f:
    f.write(f"{{os.getpid()}}\\n")
with open(here + "/argv", "w") as f:
    f.write("\\n".join(sys.argv[1:]))
def answer(**facts):
    print(json.dumps(facts), flush=True)
{hello}
for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    keys = request["keys"]
    {body}
"""

Make = Callable[[str], KvCheck]


@pytest_asyncio.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """A check whose helper does this with each request. No process and no descriptor outlives it."""
    checks: list[KvCheck] = []
    before = len(os.listdir("/proc/self/fd"))

    def start(body: str, hello: str = "answer(hello=True)") -> KvCheck:
        script = tmp_path / "python"
        script.write_text(
            FAKE.format(python=sys.executable, here=str(tmp_path), hello=hello, body=body.replace("\n", "\n    "))
        )
        script.chmod(0o700)
        params = {
            "python": str(script),
            "host": "127.0.0.1",
            "port": 18481,
            "keys": 4,
            "env": {"PATH": os.defpath},
            "log": str(tmp_path / "log/probe.log"),
        }
        checks.append(KvCheck(CheckSpec("kv", "worker-kv", 1.0, 1.0, params=params), tools()))
        return checks[-1]

    yield start
    for check in checks:
        await check.close()
    assert all(gone(pid) for pid in pids(tmp_path))
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) == before


def pids(where: Path) -> list[int]:
    path = where / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def ask(check: KvCheck, timeout_s: float = 20.0) -> Result:
    return await asyncio.wait_for(check.probe(TARGET), timeout_s)


async def test_answers_come_from_one_long_lived_helper(make: Make, tmp_path: Path) -> None:
    check = make("answer(failed={} if len(set(keys)) == 4 and request['size'] == 1024 else {'x': 'bad request'})")
    for _ in range(3):
        result = await ask(check)
        assert (result.verdict, result.evidence) == (Verdict.OK, "KV: set and get of 4 random keys")
    assert len(pids(tmp_path)) == 1
    # a fifth of the probe's time is left for the answer's way
    assert (tmp_path / "argv").read_text().split("\n") == [str(HELPER), "127.0.0.1", "18481", "800"]


async def test_every_key_failed(make: Make) -> None:
    result = await ask(make("answer(failed={k: 'code: [RPC unavailable]' for k in keys})"))
    assert (result.verdict, result.evidence) == (Verdict.FAIL, "KV: 4 of 4 keys failed: code: [RPC unavailable]")


async def test_some_keys_failed_and_their_owner_may_be_a_peer(make: Make) -> None:
    result = await ask(make("answer(failed={keys[0]: 'Create meta to master failed'})"))
    assert result.verdict is Verdict.UNKNOWN
    assert result.evidence == "KV: 1 of 4 keys failed: Create meta to master failed"


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("code: [RPC unavailable] RPC_RECV_TIMEOUT", Verdict.FAIL),
        ("code: [Not ready]", Verdict.FAIL),
    ],
)
async def test_errors(make: Make, error: str, verdict: Verdict) -> None:
    result = await ask(make(f"answer(failed={{}}, error={error!r})"))
    assert (result.verdict, error in result.evidence) == (verdict, True)


@pytest.mark.parametrize(
    "body",
    [
        "sys.exit(3)",
        "os.kill(os.getpid(), 9)",
        "print('Traceback (most recent call last):', flush=True)",
        "print('{', flush=True)",
        "print('7', flush=True)",
        "print('x' * 200000, flush=True)",
        "sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush()",
    ],
)
async def test_a_helper_that_dies_or_talks_nonsense_is_replaced(make: Make, tmp_path: Path, body: str) -> None:
    check = make(f"if len(open(here + '/pids').readlines()) == 1:\n    {body}\nelse:\n    answer(failed={{}})")
    first = await ask(check)
    assert (first.verdict, "no answer" in first.evidence) == (Verdict.UNKNOWN, True)
    assert str(tmp_path / "log/probe.log") in first.evidence
    assert (await ask(check)).verdict is Verdict.OK
    one, two = pids(tmp_path)
    assert gone(one)
    assert not gone(two)


async def test_a_helper_that_hangs_is_given_up_and_replaced(make: Make, tmp_path: Path) -> None:
    check = make("if len(open(here + '/pids').readlines()) == 1:\n    time.sleep(60)\nanswer(failed={})")
    with pytest.raises(asyncio.TimeoutError):
        await ask(check, 0.5)
    assert (await ask(check)).verdict is Verdict.OK
    assert len(pids(tmp_path)) == 2
    assert gone(pids(tmp_path)[0])


async def test_a_late_answer_is_not_taken_for_the_next_ones(make: Make) -> None:
    check = make("if number == 0: time.sleep(0.6)\nanswer(failed={} if number else {k: 'late' for k in keys})")
    with pytest.raises(asyncio.TimeoutError):
        await ask(check, 0.3)
    await asyncio.sleep(0.5)
    # of a fresh helper: its own first answer, late or not
    assert (await ask(check)).evidence == "KV: 4 of 4 keys failed: late"


async def test_a_helper_that_does_not_read_is_killed_too(make: Make, tmp_path: Path) -> None:
    check = make("os.kill(os.getpid(), 19)")
    with pytest.raises(asyncio.TimeoutError):
        await ask(check, 0.5)
    began = time.monotonic()
    await check.close()
    assert time.monotonic() - began < 5
    assert all(gone(pid) for pid in pids(tmp_path))


async def test_given_up_before_it_began_leaves_no_process(make: Make, tmp_path: Path) -> None:
    check = make("answer(failed={})")
    with pytest.raises(asyncio.TimeoutError):
        await ask(check, 0.0)
    assert (await ask(check)).verdict is Verdict.OK


async def test_no_interpreter(tmp_path: Path) -> None:
    params = {
        "python": str(tmp_path / "none"),
        "host": "h",
        "port": 1,
        "keys": 4,
        "env": {},
        "log": str(tmp_path / "l"),
    }
    check = KvCheck(CheckSpec("kv", "worker-kv", 1.0, 1.0, params=params), tools())
    result = await check.probe(TARGET)
    assert result.verdict is Verdict.UNKNOWN
    assert result.evidence == f"cannot start the SDK helper with {tmp_path}/none: No such file or directory"
    await check.close()


SDK = """
import json, os, sys, time
class KVClient:
    def __del__(self):
        # a farewell to a worker that is dead
        if self.kept:
            time.sleep(3600)
    def __init__(self, host, port, connect_timeout_ms, req_timeout_ms):
        self.kept = {}
        print("the SDK prints on stdout")
        assert (host, port, connect_timeout_ms, req_timeout_ms) == ("127.0.0.1", 18481, 800, 800)
    def init(self):
        flag = os.environ["FLAG"]
        if not os.path.exists(flag):
            open(flag, "w").close()
            raise RuntimeError("code: [RPC unavailable]\\n  RPC_RECV_TIMEOUT")
    def set(self, key, value, ttl_second):
        assert ttl_second == 30
        if key == "refused":
            raise RuntimeError("hash master get failed")
        self.kept[key] = value
    def get(self, keys):
        return [{"torn": b"x", "lost": None}.get(k, memoryview(self.kept[k])) for k in keys]
    def delete(self, keys):
        self.deleted = keys
"""


def test_the_helper_itself_with_an_sdk_that_is_made_up(tmp_path: Path) -> None:
    package = tmp_path / "yr/datasystem"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SDK)
    requests = ['{"keys": ["a"], "size": 8}\n'] * 2 + ['{"keys": ["a", "torn", "lost", "refused"], "size": 8}\n']
    done = subprocess.run(
        [sys.executable, "-S", str(HELPER), "127.0.0.1", "18481", "800"],
        input="".join(requests).encode(),
        env={"PYTHONPATH": str(tmp_path), "FLAG": str(tmp_path / "flag")},
        capture_output=True,
        timeout=30,
        check=True,
    )
    hello, first, second, third = map(json.loads, done.stdout.splitlines())
    assert hello == {"hello": True}
    assert first == {"failed": {}, "error": "code: [RPC unavailable] RPC_RECV_TIMEOUT"}
    assert second == {"failed": {}}, "it connects again after a failure"
    lie = "get returned something else than was set"
    assert third == {"failed": {"torn": lie, "lost": lie, "refused": "hash master get failed"}}
    assert b"the SDK prints on stdout" in done.stderr


async def test_a_helper_that_loads_slowly_is_waited_for_and_blames_nobody(make: Make, tmp_path: Path) -> None:
    check = make("answer(failed={})", "while not os.path.exists(here + '/go'): time.sleep(0.01)\nanswer(hello=True)")
    for _ in range(2):
        assert (await ask(check)).verdict is Verdict.UNKNOWN
    (tmp_path / "go").touch()
    assert (await ask(check)).verdict is Verdict.OK
    assert len(pids(tmp_path)) == 1


async def test_an_sdk_that_cannot_be_loaded_says_nothing_about_the_worker(make: Make) -> None:
    result = await ask(make("", 'answer(hello=False, error="No module named yr")\nsys.exit()'))
    assert result.verdict is Verdict.UNKNOWN
    assert "No module named yr" in result.evidence
