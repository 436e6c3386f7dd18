"""The transition table, and the diagram that the documentation shows of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from yrnode.model.state import RUNNING, TRANSITIONS, WITH_PROCESS, Move, Plane, State, after, diagram

ROOT = Path(__file__).resolve().parents[2]


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    seen, new = {State.STOPPED}, [State.STOPPED]
    while new:
        for target in TRANSITIONS[new.pop()].values():
            if target not in seen:
                seen.add(target)
                new.append(target)
    assert seen == set(State)


def test_every_move_is_used() -> None:
    assert {move for moves in TRANSITIONS.values() for move in moves} == set(Move)


def test_every_move_is_asked_for_by_some_policy() -> None:
    policies = "".join(path.read_text("utf-8") for path in (ROOT / "yrnode/policy").glob("*.py"))
    assert [move for move in Move if not re.search(rf"\bAction\(\s*Move\.{move.name}\b", policies)] == []


@pytest.mark.parametrize("state", State)
def test_every_state_accepts_stop(state: State) -> None:
    target = after(state, Move.STOP)
    # what may have a process goes through the proof that nothing is left; the rest is at rest at once
    through_stopping = state in WITH_PROCESS or state is State.CLEANING
    assert target is (State.STOPPING if through_stopping else State.STOPPED)


@pytest.mark.parametrize("state", State)
def test_every_state_leads_back_to_rest(state: State) -> None:
    here = after(state, Move.STOP)
    assert here is State.STOPPED or after(here, Move.REST) is State.STOPPED


def test_a_process_appears_only_by_start_and_goes_only_through_stopping() -> None:
    for state, moves in TRANSITIONS.items():
        for move, target in moves.items():
            if target in RUNNING and state not in RUNNING:
                assert (state, move) == (State.CLEANING, Move.START)
            if state in RUNNING and target not in RUNNING:
                assert (move, target) == (Move.STOP, State.STOPPING)


def test_a_move_that_the_table_lacks_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no move start from ready"):
        after(State.READY, Move.START)


def test_planes_in_order_of_start() -> None:
    assert sorted(Plane, key=lambda p: p.order) == [Plane.STORE, Plane.CACHE, Plane.ENGINE, Plane.ROUTER]


def test_the_diagram_shows_the_table() -> None:
    lines = diagram().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> stopped"]
    shown = {
        (State(a), Move(m), State(b))
        for line in lines[2:]
        for a, b, m in re.findall(r"^ {4}([a-z]+) --> ([a-z]+): ([a-z-]+)$", line)
    }
    table = {(s, m, t) for s, moves in TRANSITIONS.items() for m, t in moves.items() if s is not t}
    assert shown == table
    assert len(lines) == len(table) + 2


def test_the_architecture_document_shows_the_same_diagram() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    blocks = [block.strip("\n") for block in re.findall(r"^```mermaid\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    states = [block for block in blocks if block.startswith("stateDiagram-v2")]
    assert states == [diagram()], "write what `python -m yrnode.model.state` prints into ARCHITECTURE.md"
