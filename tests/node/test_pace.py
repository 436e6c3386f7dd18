"""When the turns of what is done again and again are."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.checks import kinds
from yrnode.checks.base import Target
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane
from yrnode.model.verdict import Result, Tally, ok
from yrnode.node.pace import Steps, pause_s, phases
from yrnode.node.prober import Prober

PERIODS = st.sampled_from((0.1, 0.5, 1.0, 2.0, 5.0, 7.3, 30.0))
PHASES = st.floats(0.0, 1.0)
MOMENTS = st.floats(0.0, 1e8)


@given(MOMENTS, PERIODS, PHASES)
def test_the_next_turn_is_half_a_period_away_or_more_and_one_and_a_half_at_most(
    now: float, period: float, phase: float
) -> None:
    assert period * 0.499 <= pause_s(now, period, phase) <= period * 1.501


@given(MOMENTS, PERIODS, PHASES, st.floats(0.0, 0.49))
def test_what_is_done_soon_is_back_a_whole_period_after_its_turn(
    now: float, period: float, phase: float, took: float
) -> None:
    turn = now + pause_s(now, period, phase)
    assert turn + took * period + pause_s(turn + took * period, period, phase) == pytest.approx(
        turn + period, abs=1e-6
    )


@given(MOMENTS, MOMENTS, PHASES)
def test_what_has_the_same_period_has_the_same_turns(one: float, other: float, phase: float) -> None:
    apart = (one + pause_s(one, 2.0, phase)) - (other + pause_s(other, 2.0, phase))
    assert apart / 2.0 == pytest.approx(round(apart / 2.0), abs=1e-6)


def test_components_have_their_turns_apart() -> None:
    found = sorted(itertools.islice(phases(), 16))
    assert min(b - a for a, b in itertools.pairwise([*found, found[0] + 1.0])) > 0.02
    assert all(0.0 <= phase < 1.0 for phase in found)


async def test_what_is_due_at_once_has_one_step_of_the_loop_each() -> None:
    steps, done = Steps(), list[int]()
    loop, counts = asyncio.get_running_loop(), list[int]()

    async def due(i: int) -> None:
        await steps.mine()
        done.append(i)

    def step() -> None:
        counts.append(len(done))
        if len(counts) < 30:
            loop.call_soon(step)

    tasks = [asyncio.create_task(due(i)) for i in range(10)]
    loop.call_soon(step)
    await asyncio.sleep(0)
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert max(b - a for a, b in itertools.pairwise(counts)) == 1
    # who comes when all have had theirs waits for nobody
    await asyncio.wait_for(due(10), 1.0)
    assert done[-1] == 10


async def test_checks_of_a_component_begin_one_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long they are due together: what comes in between is behind one of them alone."""
    began: list[int] = []
    step, ended = 0, asyncio.Event()
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal step
        step += 1
        if not ended.is_set():
            loop.call_soon(count)

    class Look:
        asker = None

        async def probe(self, target: Target) -> Result:
            began.append(step)
            return ok("fine")

        async def close(self) -> None: ...

    monkeypatch.setattr(kinds, "make", lambda spec, tools: Look())
    checks = tuple(CheckSpec(f"check{i}", "x", 0.1, 1.0) for i in range(6))
    spec = ComponentSpec("c", "x", Plane.CACHE, (), {}, Path("/x"), Path("/x"), checks=checks)
    tallies = {c.name: Tally(passed=True) for c in checks}
    steps = Steps()
    prober = Prober(spec, "i1", object(), lambda *_: None, lambda: tallies, lambda: 1, steps, 0.0)  # type: ignore[arg-type]
    try:
        loop.call_soon(count)
        deadline = loop.time() + 10.0
        while len(began) < 4 * len(checks):
            assert loop.time() < deadline
            await asyncio.sleep(0.01)
    finally:
        ended.set()
        await prober.close()
    # the first look of an instance waits for nobody
    due = began[len(checks) :]
    assert len(set(due)) == len(due)
