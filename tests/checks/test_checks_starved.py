from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from yrnode.checks import starved
from yrnode.checks.starved import EXCUSED_S, WAITED, Witness, waits
from yrnode.model.verdict import Result, Verdict

PID = 4321
MISS = Result(Verdict.FAIL, "no answer within 5 s", took_s=5.0)
FINE = Result(Verdict.OK, "fine", took_s=4.0)
SECOND = 1_000_000_000
SPIN = "while True: pass"


class Host:
    """What the kernel says: `asker` and `waited`, nanoseconds of each thread; and the time."""

    asker: int | None = PID
    now = 100.0

    def __init__(self) -> None:
        self.waited = {"1": 7 * SECOND, "2": 0}

    async def probed(
        self, witness: Witness, result: Result, waited_s: dict[str, float], took_s: float = 2.5
    ) -> Result:
        """A probe that is answered, or given up, `took_s` after the middle of its time."""
        with witness.beside(0.0):
            await asyncio.sleep(0.001)
            self.now += took_s
            self.waited = {t: self.waited.get(t, 0) + int(s * SECOND) for t, s in waited_s.items()}
        return witness.hear(result)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    monkeypatch.setattr(starved, "waits", lambda pid: dict(host.waited) if pid == PID else {})
    monkeypatch.setattr(starved, "time", SimpleNamespace(monotonic=lambda: host.now))
    return host


@pytest.mark.parametrize(
    ("waited", "result", "verdict"),
    [
        ({"1": 2.0, "2": 3.0}, MISS, Verdict.UNKNOWN),
        # who asks one that hangs waits for no core
        ({"1": 0.0, "2": 0.01}, MISS, Verdict.FAIL),
        ({"1": 2.0, "2": 2.9}, MISS, Verdict.FAIL),
        # a thread that has come or gone meanwhile says nothing
        ({"1": 0.0, "3": 9.0}, MISS, Verdict.FAIL),
        ({"1": 2.0, "2": 3.0}, FINE, Verdict.OK),
        ({"1": 2.0, "2": 3.0}, Result(Verdict.UNKNOWN, "the SDK helper is still loading"), Verdict.UNKNOWN),
    ],
)
async def test_who_is_excused(host: Host, waited: dict[str, float], result: Result, verdict: Verdict) -> None:
    assert sum(waited.values()) < 2.5 * WAITED or verdict is not Verdict.FAIL or "3" in waited
    heard = await host.probed(Witness(host), result, waited)  # type: ignore[arg-type]
    assert heard.verdict is verdict
    if verdict is result.verdict:
        assert heard == result
    else:
        why = "the asker's threads waited 5.0 s in 2.5 s for a core: this host has none free"
        assert (heard.evidence, heard.took_s) == (f"{result.evidence}, but {why}", 5.0)


async def test_a_quick_miss_is_none_of_the_hosts(host: Host) -> None:
    witness = Witness(host)  # type: ignore[arg-type]
    with witness.beside(60.0):
        host.waited = {"1": 99 * SECOND}
    assert witness.hear(MISS) is MISS


async def test_a_check_that_asks_by_no_process_of_its_own_has_no_witness(host: Host) -> None:
    host.asker = None
    assert await host.probed(Witness(host), MISS, {"1": 9.0}) is MISS  # type: ignore[arg-type]


async def test_an_excuse_does_not_last(host: Host) -> None:
    witness, busy = Witness(host), {"1": 9.0}  # type: ignore[arg-type]
    first = host.now + 2.5
    while host.now + 2.5 < first + EXCUSED_S:
        assert (await host.probed(witness, MISS, busy)).verdict is Verdict.UNKNOWN
    assert await host.probed(witness, MISS, busy) is MISS
    # an answer, and all begins anew
    assert await host.probed(witness, FINE, busy) is FINE
    assert (await host.probed(witness, MISS, busy)).verdict is Verdict.UNKNOWN


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


def waited_s(pid: int, seconds: float) -> float:
    before, began = waits(pid), time.monotonic()
    time.sleep(seconds)
    after = waits(pid)
    return sum(after[t] - before[t] for t in before) / SECOND / (time.monotonic() - began)


@pytest.mark.alone
def test_the_kernel_counts_who_waits_for_a_core_and_not_who_sleeps() -> None:
    with on_one_core("import time; time.sleep(60)", *[SPIN] * 10) as (sleeper, spinner, *_):
        deadline = time.monotonic() + 20
        # they are on their way to the core
        while (share := waited_s(spinner.pid, 0.5)) < 0.8 and time.monotonic() < deadline:
            pass
        assert share >= 0.8
        assert waited_s(sleeper.pid, 0.2) < 0.1
    assert waits(sleeper.pid) == {}
