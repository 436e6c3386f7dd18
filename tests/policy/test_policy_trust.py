"""How far the shared keys can be trusted, and for how long a store that has lost something is waited for."""

from __future__ import annotations

import pytest

from tests.policy.build import board, record, serve
from yrnode.model.board import Board
from yrnode.model.group import Stage
from yrnode.policy import trust

KEPT = serve(record(n=4))
WHOLE = board(KEPT, {})
OLDER = board(serve(record(Stage.STOP, 3)), {})
OTHER = board(KEPT, {}, store_id="another")


def test_a_store_that_has_lost_nothing_is_known_at_once() -> None:
    assert trust.Known().read([KEPT], Board(), 1.0) == trust.Known()
    known = trust.Known().read([KEPT], WHOLE, 1.0)
    assert known == trust.Known("uuid")
    assert known.settled(0.0)


@pytest.mark.parametrize("found", [OLDER, OTHER, Board(1, "uuid")])
def test_one_that_has_lost_something_is_waited_for(found: Board) -> None:
    known = trust.Known("uuid").read([KEPT], found, 100.0)
    assert known.kept == (found.store_id, True)
    assert not known.settled(100.0 + trust.SETTLE_S - 0.1)
    assert known.settled(100.0 + trust.SETTLE_S)
    # what is put back in the meantime changes nothing about that
    again = known.read([KEPT], board(KEPT, {}, store_id=found.store_id), 101.0)
    assert again == known
    assert known.later(101.0) == known
    assert known.later(100.0 + trust.SETTLE_S).kept == (found.store_id, False)


def test_what_is_still_lost_begins_the_wait_anew() -> None:
    known = trust.Known("uuid").read([KEPT], OLDER, 100.0).read([KEPT], OLDER, 104.0)
    assert known.until == 104.0 + trust.SETTLE_S


def test_a_daemon_that_starts_in_the_middle_waits_for_all_of_it_again() -> None:
    """Its clock may be another one, and the others may have put back nothing yet."""
    before = trust.Known("uuid").read([KEPT], OTHER, 100.0)
    after = trust.Known(*before.kept)
    assert not after.settled(1e9)
    assert after.later(1e9) == after
    after = after.read([KEPT], OTHER, 3.0)
    assert after.until == 3.0 + trust.SETTLE_S
    assert trust.Known(*after.later(after.until).kept).settled(0.0)
