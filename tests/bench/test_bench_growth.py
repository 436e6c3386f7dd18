"""A node's work does not grow faster than what it looks at. Operations are counted, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

import pytest

from bench.growth_worlds import STAGES, World, make, one_word, round_of, routing_of
from bench.slopes import steepest
from yrnode.model.group import GroupMove
from yrnode.model.state import Move
from yrnode.policy.plan import decide

SIZES = (16, 32, 64, 128, 256, 512)
LINEAR = 1.1


class Name(str):
    """Counts how often it is compared: a look through a tuple is no call, and n of them in a loop are a square."""

    __slots__ = ()
    compared: ClassVar[int] = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def operations(work: Callable[[], object]) -> int:
    """Calls of functions, steps of generators and comparisons of names."""
    work()
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = Name.compared
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count + Name.compared - before


@pytest.mark.parametrize("stage", STAGES)
def test_a_round_is_linear_in_its_components(stage: str) -> None:
    assert steepest([(n, operations(round_of(make(stage, ranks=n)))) for n in SIZES]) < LINEAR


@pytest.mark.parametrize("stage", STAGES)
def test_a_round_is_linear_in_the_nodes(stage: str) -> None:
    assert steepest([(n, operations(round_of(make(stage, nodes=n, name=Name)))) for n in SIZES]) < LINEAR


def test_what_another_node_says_is_linear_in_the_nodes() -> None:
    assert steepest([(n, operations(one_word(make("quiet", nodes=n, name=Name)))) for n in SIZES]) < LINEAR


def test_what_the_routers_node_judges_is_linear_in_the_nodes() -> None:
    assert steepest([(n, operations(routing_of(make("quiet", nodes=n, name=Name)))) for n in SIZES]) < LINEAR


def test_a_square_is_seen() -> None:
    names = {n: tuple(Name(f"n{i}") for i in range(n)) for n in SIZES}
    square = [(n, operations(lambda n=n: [x in names[n] for x in names[n]])) for n in SIZES]
    assert steepest(square) > 1.8


@pytest.mark.parametrize(
    ("stage", "ranks", "moves"),
    [
        ("quiet", 3, []),
        ("stopping", 3, [Move.STOP] * 3),
        ("gathering", 3, []),
        ("clean", 1, [GroupMove.GO]),
        ("starting", 3, []),
    ],
)
def test_the_worlds_are_what_they_say(stage: str, ranks: int, moves: list[object]) -> None:
    found = [a.move for a in decide(world_of(stage, ranks).snapshot(1000.0)) if a.move is not GroupMove.TELL]
    assert found == moves


def world_of(stage: str, ranks: int) -> World:
    return make(stage, ranks=ranks, nodes=4)
