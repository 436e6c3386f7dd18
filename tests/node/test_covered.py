"""What comes from outside is covered where it enters, before it becomes a decision, a record or a status."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.policy.build import spec
from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import Cover
from yrnode.model.spec import CheckSpec
from yrnode.model.state import Move, State
from yrnode.model.verdict import Result, fail, ok
from yrnode.node import world
from yrnode.node.world import World

KNOWN = "planted-known-4e1b"
TOLD = [f"it said {KNOWN} and went", f"unrecognized arguments: --apikey {KNOWN}", "http://me:secret7@host/ is away"]
SOURCE = Path(__file__).resolve().parents[2] / "yrnode"


def made() -> World:
    one = replace(spec("etcd"), checks=(CheckSpec("read", "http", 1.0, 1.0),))
    found = world.make([one], 0.0)
    found.cover = Cover([KNOWN])
    found.update("etcd", state=State.READY, instance="i1", ready_at=0.0)
    return found


@pytest.mark.parametrize("words", TOLD)
@pytest.mark.parametrize("fact", ["death", "blocked", "cause", "unwanted"])
def test_a_cause_that_is_written_down(fact: str, words: str) -> None:
    view = made().update("etcd", **{fact: Cause(Reason.EXITED, words, words, "etcd")})
    cause = getattr(view, fact)
    assert shows_nothing(cause.text)
    assert shows_nothing(cause.evidence)
    assert (cause.reason, cause.component) == (Reason.EXITED, "etcd")


@pytest.mark.parametrize("words", TOLD)
def test_a_move_with_its_history(words: str) -> None:
    w = made()
    w.apply(Action(Move.STOP, "etcd", Cause(Reason.MEMBER, "no member", words, "etcd")), 1.0)
    view = w.components["etcd"]
    assert view.leaving is not None
    assert view.cause is not None
    causes = (view.leaving, view.cause, view.history[-1].cause)
    assert [c for c in causes if not shows_nothing(c.evidence)] == []


@pytest.mark.parametrize("words", TOLD)
@pytest.mark.parametrize("make", [ok, fail])
def test_a_result(make: type[Result], words: str) -> None:
    w = made()
    assert w.record_result("etcd", "i1", "read", make(words), 1.0)
    assert shows_nothing(w.components["etcd"].checks["read"].result.evidence)


def test_what_has_nothing_to_cover_is_the_same_one() -> None:
    cause = Cause(Reason.EXITED, "exited: exit code 1", "Address already in use", "etcd")
    assert made().update("etcd", death=cause).death is cause


def test_a_probe_that_says_what_the_last_one_said_is_not_looked_at() -> None:
    w, seen = made(), []

    def cover(text: str) -> str:
        seen.append(text)
        return text

    w.cover = cover
    for at in range(5):
        w.record_result("etcd", "i1", "read", ok("http://127.0.0.1:8000/health: 200"), float(at))
    assert seen == ["http://127.0.0.1:8000/health: 200"]


def test_text_is_cut_between_words_alone() -> None:
    """Half a secret is not known for one any more."""
    cuts = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for size in re.findall(r"\[:(\d+)\]", path.read_text("utf-8"))
        if 80 < int(size) < 1000
    }
    # what stands alone and knows no secret; and bytes of which a part is shown, cut between words
    alone = {"checks/kv_helper.py", "checks/kv_pair_helper.py", "preflight/inside.py"}
    assert cuts == {*alone, "store/transport.py"}


def shows_nothing(text: str) -> bool:
    """Covered, not left out."""
    return "***" in text and KNOWN not in text and "secret7" not in text
