from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from yrnode.checks import starved
from yrnode.checks.starved import EXCUSED_S, TURN_S, Witness, turn_wait
from yrnode.model.verdict import Result, Verdict

PID = 4321
MISS = Result(Verdict.FAIL, "no answer within 5 s", took_s=5.0)
SPIN = "while True: pass"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, float | None]:
    """What the kernel says, and the time."""
    said: dict[str, float | None] = {"wait": TURN_S, "now": 100.0}

    async def wait(pid: int) -> float | None:
        assert pid == PID
        return said["wait"]

    monkeypatch.setattr(starved, "turn_wait", wait)
    monkeypatch.setattr(starved, "time", SimpleNamespace(monotonic=lambda: said["now"]))
    return said


@pytest.mark.parametrize(
    ("wait", "result", "verdict"),
    [
        (TURN_S, MISS, Verdict.UNKNOWN),
        (TURN_S, Result(Verdict.FAIL, "KV: RPC deadline exceeded", took_s=2.5), Verdict.UNKNOWN),
        # a worker that hangs asks for no core; one on an idle host gets its core at once
        (None, MISS, Verdict.FAIL),
        (TURN_S * 0.9, MISS, Verdict.FAIL),
        # refused at once: no matter of time
        (TURN_S, Result(Verdict.FAIL, "connection refused", took_s=0.01), Verdict.FAIL),
        (TURN_S, Result(Verdict.UNKNOWN, "the SDK helper is still loading", took_s=5.0), Verdict.UNKNOWN),
        (TURN_S, Result(Verdict.OK, "fine", took_s=4.0), Verdict.OK),
    ],
)
async def test_who_is_excused(
    host: dict[str, float | None], wait: float | None, result: Result, verdict: Verdict
) -> None:
    host["wait"] = wait
    heard = await Witness().hear(result, PID, 5.0)
    assert heard.verdict is verdict
    if verdict is result.verdict:
        assert heard == result
    else:
        assert (
            heard.evidence
            == f"{result.evidence}, but it waits 25 ms for each turn on a core: this host has none free"
        )
        assert heard.took_s == result.took_s


async def test_an_excuse_does_not_last(host: dict[str, float | None]) -> None:
    witness = Witness()
    for now, verdict in [(100.0, Verdict.UNKNOWN), (159.0, Verdict.UNKNOWN), (100.0 + EXCUSED_S, Verdict.FAIL)]:
        host["now"] = now
        assert (await witness.hear(MISS, PID, 5.0)).verdict is verdict
    # an answer, and all begins anew
    await witness.hear(Result(Verdict.OK, "fine", took_s=4.0), PID, 5.0)
    assert (await witness.hear(MISS, PID, 5.0)).verdict is Verdict.UNKNOWN


async def test_without_a_process_there_is_no_witness() -> None:
    assert await Witness().hear(MISS, None, 5.0) is MISS


@contextmanager
def on_one_core(*scripts: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    core = min(os.sched_getaffinity(0))
    found: list[subprocess.Popen[bytes]] = []
    try:
        for script in scripts:
            found.append(subprocess.Popen([sys.executable, "-S", "-c", script]))
            os.sched_setaffinity(found[-1].pid, {core})
        yield found
    finally:
        for process in found:
            process.kill()
            process.wait()


@pytest.mark.alone
async def test_one_of_many_on_a_core_waits_for_each_turn() -> None:
    with on_one_core(*[SPIN] * 40) as found:
        wait = await turn_wait(found[0].pid)
        deadline = time.monotonic() + 20
        # some are still on their way to the core
        while (wait is None or wait < TURN_S) and time.monotonic() < deadline:
            wait = await turn_wait(found[0].pid)
        assert wait is not None
        assert wait >= TURN_S


async def test_who_sleeps_or_is_frozen_or_gone_waits_for_nothing() -> None:
    with on_one_core("import time; time.sleep(60)") as (sleeper,):
        os.kill(sleeper.pid, 19)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        assert await turn_wait(sleeper.pid) is None
    assert await turn_wait(sleeper.pid) is None
