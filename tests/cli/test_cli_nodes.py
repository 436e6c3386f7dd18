"""What `status` says of other nodes: by name while they are few, and in few words while they are many."""

import pytest

from tests.api.fake import FakeNode
from yrnode.api.app import now_status
from yrnode.cli.nodes import FEW, peers, phases
from yrnode.cli.status import text
from yrnode.cli.watch import Feed, _words

PEER = {"up": True, "absent_since": None, "fenced": False, "version": "9.9.9", "differs": []}


@pytest.fixture
def status(tmp_path):
    return now_status(FakeNode(tmp_path))


def table(status, title):
    """Rows of the table whose first column has this title, with one space between the cells."""
    lines = [" ".join(line.split()) for line in text(status)]
    start = next((i for i, line in enumerate(lines) if line.startswith(title)), None)
    return [] if start is None else lines[start : [*lines, ""].index("", start)]


def test_many_nodes_in_few_words():
    assert phases({"n0": "ready"}) == "ready"
    assert phases({f"n{i}": "ready" for i in range(8)}) == "8 ready"
    mixed = {f"n{i}": "starting" if i in (2, 5) else "ready" for i in range(8)}
    assert phases(mixed) == "6 ready, 2 starting (n2 n5)"
    assert phases({}) == ""


def test_hundreds_that_differ_are_counted():
    half = {f"n{i}": "ready" if i % 2 else "starting" for i in range(401)}
    assert phases(half) == "201 starting, 200 ready (n1 n3 n5 n7 n9 n11 n13 and 193 more)"


def test_a_node_alone_has_no_table_of_others(status):
    status["peers"] = {}
    assert table(status, "NODE") == []


def test_the_status_names_who_differs(status):
    status["peers"] = {
        "n1": {**PEER, "version": "9.9.8", "differs": ["the cluster file's group serve", "version 9.9.8"]},
        "n2": {**PEER, "up": False, "absent_since": status["started_at"], "version": None},
        "n3": {**PEER, "up": None, "version": None},
        "n4": {**PEER, "up": False, "fenced": True, "version": None},
        "n5": PEER,
    }
    assert table(status, "NODE") == [
        "NODE IS SINCE YRNODE DIFFERS",
        "n1 up - 9.9.8 the cluster file's group serve; version 9.9.8",
        "n2 absent 1h1m - -",
        "n3 unknown - - -",
        "n4 fenced - - -",
        "n5 up - 9.9.9 -",
    ]


def test_hundreds_that_are_alike_are_one_row(status):
    status["peers"] = {f"n{i}": dict(PEER) for i in range(400)}
    status["peers"]["n7"]["differs"] = ["the cluster file's group serve"]
    assert table(status, "NODE")[1:] == [
        "n0 and 398 more up - 9.9.9 -",
        "n7 up - 9.9.9 the cluster file's group serve",
    ]


def test_of_many_that_are_away_the_longest_is_told(status):
    status["peers"] = {f"n{i}": {**PEER, "up": False, "absent_since": status["at"]} for i in range(FEW + 1)}
    status["peers"]["n3"]["absent_since"] = status["started_at"]
    assert [row[:3] for row in peers(status)] == [(f"n0 and {FEW} more", "absent", "1h1m")]


def test_phases_of_a_group_have_the_names_of_their_nodes(status):
    status["groups"]["serve"] |= {"phases": {"n0": "ready", "n1": "unknown", "n2": "ready"}}
    assert table(status, "GROUP")[0] == "GROUP STAGE GEN PHASES WAITS FOR CAUSE"
    assert "2 ready, 1 unknown (n1)" in table(status, "GROUP")[1]
    feed = Feed.__new__(Feed)
    feed.status, feed.error = status, ""
    assert _words(feed)["group serve"].endswith("2 ready, 1 unknown (n1)")


def test_a_group_that_waits_for_hundreds_stays_on_a_line(status):
    status["groups"]["serve"]["waiting_for"] = [f"n{i}" for i in range(300)]
    assert "n0, n1, n2, n3, n4, n5, n6, and 293 more" in table(status, "GROUP")[1]
