"""Causes, events, records and specs: the words that every room shares."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from yrnode.model.cause import FAULTS, Cause, Reason
from yrnode.model.errors import UsageError
from yrnode.model.event import Event
from yrnode.model.group import Stage
from yrnode.model.snapshot import ComponentView
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally, fail, ok, unknown


def test_a_cause_reads_as_one_line_with_its_evidence() -> None:
    assert str(Cause(Reason.EXITED, "exited: exit code 0")) == "exited: exit code 0"
    assert str(Cause(Reason.CHECK, "check kv fails", "4 of 4 keys")) == "check kv fails (4 of 4 keys)"


@pytest.mark.parametrize("reason", Reason)
def test_only_faults_count_against_a_budget(reason: Reason) -> None:
    other = (
        "start",
        "operator",
        "shutdown",
        "group",
        "coupled",
        "memory",
        "worker",
        "clock",
        "residue",
        "proven",
        "recovered",
        "gone",
    )
    assert Cause(reason, "x").fault is (reason.value not in other) is (reason in FAULTS)


FULL = Event(7, 1.5, "worker", "stop", "check", "check kv fails", "4 of 4 keys", "a1b2", 3, "worker")
BARE = Event(8, 2.0, "yrnode", "ready", "proven", "READY")


def test_an_event_as_a_line() -> None:
    assert FULL.line() == "worker: stop: check kv fails [4 of 4 keys] generation=3 instance=a1b2"
    assert BARE.line() == "yrnode: ready: READY"


def test_an_event_as_json_leaves_out_what_is_empty() -> None:
    full = json.loads(json.dumps(FULL.as_dict()))
    assert full == {
        "seq": 7,
        "at": 1.5,
        "target": "worker",
        "what": "stop",
        "reason": "check",
        "text": "check kv fails",
        "evidence": "4 of 4 keys",
        "instance": "a1b2",
        "generation": 3,
        "culprit": "worker",
    }
    assert Event(**full) == FULL
    assert {"evidence", "instance", "culprit"} & BARE.as_dict().keys() == set()
    assert Event(**BARE.as_dict()) == BARE


def test_a_usage_error_keeps_its_lines() -> None:
    error = UsageError("a: wrong", "b: wrong")
    assert (str(error), error.lines) == ("a: wrong\nb: wrong", ("a: wrong", "b: wrong"))


def test_stages_are_ordered() -> None:
    assert Stage.STOP.order < Stage.GO.order < Stage.FAILED.order


def view(*checks: CheckSpec, tallies: dict[str, Tally]) -> ComponentView:
    spec = ComponentSpec("x", "x", Plane.CACHE, ("true",), {}, Path("/d"), Path("/l"), checks=checks)
    return ComponentView(spec, State.STARTING, 0.0, checks=tallies)


def test_a_component_is_proven_by_all_of_its_gates_and_by_nothing_else() -> None:
    gates = (CheckSpec("a", "http", 1, 1, gate=True), CheckSpec("b", "http", 1, 1, gate=True))
    other = CheckSpec("c", "process", 1, 1)
    passed = Tally(passed=True)
    assert not view(*gates, other, tallies={"a": passed, "b": Tally(), "c": passed}).proven
    assert view(*gates, other, tallies={"a": passed, "b": passed, "c": Tally()}).proven


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.seq = 9  # type: ignore[misc]


def test_verdicts() -> None:
    assert [r.verdict.value for r in (ok(""), fail(""), unknown(""))] == ["ok", "fail", "unknown"]
    assert (Tally().passed, Tally().failing, Tally().result.verdict.value) == (False, False, "unknown")
