"""Whether the main process runs, and whether a rank's engine processes are all there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.checks.conftest import tools
from tests.process.lab import state_of, until
from yrnode.checks.base import Target
from yrnode.checks.process import ProcessCheck
from yrnode.checks.process_set import ProcessSetCheck
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Verdict
from yrnode.process import table


async def verdict(pid: int | None) -> tuple[Verdict, str]:
    check = ProcessCheck(CheckSpec("process", "process", 1.0, 1.0), tools())
    result = await check.probe(Target("etcd", "i1", pid))
    return result.verdict, result.evidence


async def test_states_of_a_process() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    try:
        await until(lambda: state_of(child.pid) == "S")
        assert (await verdict(child.pid))[0] is Verdict.OK
        child.send_signal(signal.SIGSTOP)
        await until(lambda: state_of(child.pid) == "T")
        assert await verdict(child.pid) == (Verdict.FAIL, f"pid {child.pid} (sleep, state T)")
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        zombie = await verdict(child.pid)
        child.wait()
    assert zombie == (Verdict.FAIL, f"pid {child.pid} (sleep, state Z)")
    assert await verdict(child.pid) == (Verdict.FAIL, f"pid {child.pid} is gone")


async def test_a_process_that_is_not_known_yet() -> None:
    assert (await verdict(None))[0] is Verdict.UNKNOWN


@pytest.mark.parametrize("state", "RSD")
async def test_living_states(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "read", lambda pid: table.Proc(pid, "x", state, 1, pid, pid, 1))
    assert (await verdict(5))[0] is Verdict.OK


RANK = """
import ctypes, os, sys, time
def title(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
children = []
for name in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        title(name)
        time.sleep(60)
    children.append(str(pid))
print(*children, flush=True)
time.sleep(60)
"""


async def test_the_engine_processes_of_a_rank() -> None:
    argv = [sys.executable, "-S", "-c", RANK, "VLLM::EngineCore", "VLLM::Worker", "resource_tracker"]
    rank = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    check = ProcessSetCheck(CheckSpec("processes", "process-set", 1.0, 1.0), tools())
    target = Target("rank/serve/0", "i1", rank.pid)
    with rank:
        assert rank.stdout is not None
        core, worker, tracker = map(int, rank.stdout.readline().split())
        try:
            # a fork has its parent's name until it takes its own
            await until(lambda: [table.read(p).comm[:6] for p in (core, worker)] == ["VLLM::"] * 2)  # type: ignore[union-attr]
            result = await check.probe(target)
            assert (result.verdict, str(core) in result.evidence, str(tracker) in result.evidence) == (
                Verdict.OK,
                True,
                False,
            )
            os.kill(tracker, signal.SIGKILL)
            assert (await check.probe(target)).verdict is Verdict.OK
            os.kill(worker, signal.SIGSTOP)
            await until(lambda: state_of(worker) == "T")
            assert (await check.probe(target)).verdict is Verdict.UNKNOWN
            os.kill(core, signal.SIGKILL)
            await until(lambda: state_of(core) in ("", "Z"))
            result = await check.probe(target)
            assert (result.verdict, result.evidence) == (Verdict.FAIL, f"gone: VLLM::EngineCor (pid {core})")
        finally:
            os.killpg(rank.pid, signal.SIGKILL)


async def test_a_rank_without_titles_is_not_judged() -> None:
    check = ProcessSetCheck(CheckSpec("processes", "process-set", 1.0, 1.0), tools())
    assert (await check.probe(Target("rank/serve/0", "i1", os.getpid()))).verdict is Verdict.UNKNOWN
