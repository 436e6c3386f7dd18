"""The group protocol under seeded faults. A seed that fails is played again, and its history shown, by

YRNODE_SIM_SEED=<seed> YRNODE_SIM_NODES=<nodes> pytest tests/simulation -k replay -s
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.cluster import Broken
from tests.simulation.faults import ALL, NO_OPERATOR, live
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.scenarios import SCENARIOS, Scenario, second_ring, stale_fence

SEEDS = int(os.environ.get("YRNODE_SIM_SEEDS", "2000"))
CHUNK = 50
LAST_LINES = 60
pytestmark = pytest.mark.timeout(600)


def play(seed: int, nodes: int) -> dict[str, str]:
    # every third seed without operators: nothing excuses a stop there
    mix = NO_OPERATOR if seed % 3 == 0 else ALL
    return live(seed, nodes, mix, 1 + seed % 6, pair=seed % 4 == 1).ends


def told(e: Broken, nodes: int, seed: int, lines: int = LAST_LINES) -> str:
    again = f"YRNODE_SIM_SEED={seed} YRNODE_SIM_NODES={nodes} pytest tests/simulation -k replay -s"
    return "\n".join([*e.history[-lines:], str(e), again])


def lived(seeds: range, nodes: int) -> Counter[str]:
    ends: Counter[str] = Counter()
    for seed in seeds:
        try:
            ends.update(play(seed, nodes).values())
        except Broken as e:
            pytest.fail(told(e, nodes, seed), pytrace=False)
    return ends


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_eight_nodes(first: int) -> None:
    ends = lived(range(first, min(first + CHUNK, SEEDS)), 8)
    # a protocol that gives up, or waits, whenever anything happens would hold every invariant too
    assert ends["serving"] > 0.8 * ends.total()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_256_nodes(seed: int) -> None:
    lived(range(seed, seed + 1), 256)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_broke_weaker_protocols(name: str) -> None:
    found: Scenario = SCENARIOS[name]
    for seed in range(25):
        try:
            live(seed, found.nodes, found.mix, found.count, early=found.early, pair=found.pair)
        except Broken as e:
            pytest.fail("\n".join([*e.history[-LAST_LINES:], str(e)]), pytrace=False)


@pytest.mark.parametrize("story", [stale_fence, second_ring])
def test_what_takes_a_moment_to_break(story) -> None:
    for seed in range(25):
        story(seed)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_the_simulation_notices_a_missing_rule(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.change(monkeypatch)
    noticed = next((e for seed in range(150) if (e := broken_by(mutant, seed)) is not None), None)
    assert noticed is not None, "150 seeds have shown nothing"
    assert str(noticed).startswith(mutant.breaks)


def broken_by(mutant: Mutant, seed: int) -> Broken | None:
    try:
        mutant.play(seed)
    except Broken as e:
        return e
    return None


def test_replay() -> None:
    seed, nodes = int(os.environ.get("YRNODE_SIM_SEED", "0")), int(os.environ.get("YRNODE_SIM_NODES", "8"))
    try:
        print(play(seed, nodes))
    except Broken as e:
        pytest.fail(told(e, nodes, seed, 10_000), pytrace=False)
