"""The pure pieces: keys, prefixes, the ring's bytes, the difference after a compaction, backoff."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.model.board import Board
from yrnode.model.group import Member, Phase
from yrnode.store import ClusterKeys, DatasystemKeys, Delete, KeyValue, Listing, ring_has
from yrnode.store.backoff import Backoff
from yrnode.store.board import fold
from yrnode.store.codec import dump, member_dict
from yrnode.store.interface import Event
from yrnode.store.keys import range_end
from yrnode.store.watch import difference

# As two workers of openyuanrong-datasystem 0.8.1 at 127.0.0.1:2184 and :21840 wrote it.
RING = (
    b"\x129\n\x0f127.0.0.1:21840\x12&\x12$059c3598-3a3d-4187-ba9d-f89ba3b3db80\x12P\n\x0e127.0.0.1:2184\x12>\n\x14"
    b"\xff\xff\xff\xff\x03\xfe\xff\xff\xff\x07\xfd\xff\xff\xff\x0b\xfc\xff\xff\xff\x0f\x12$a132dbb2-58b8-481b-9bc5-"
    b"0332c68af5b6\x18\x02\x18\x01"
)


def test_names_of_our_own_keys() -> None:
    keys = ClusterKeys("prod")
    named = {
        keys.store: ("/yrnode/prod/store", ("store",)),
        keys.node("n1"): ("/yrnode/prod/nodes/n1", ("nodes", "n1")),
        keys.record("prefill"): ("/yrnode/prod/groups/prefill/record", ("groups", "prefill", "record")),
        keys.member("prefill", "n1"): (
            "/yrnode/prod/groups/prefill/members/n1",
            ("groups", "prefill", "members", "n1"),
        ),
        keys.intent("rank/prefill/0"): ("/yrnode/prod/intents/rank/prefill/0", ("intents", "rank/prefill/0")),
        keys.fence("n1"): ("/yrnode/prod/fenced/n1", ("fenced", "n1")),
    }
    for key, (text, parts) in named.items():
        assert key == text
        assert keys.parts(key) == parts
    assert keys.parts("/yrnode/product/store") == ()
    assert keys.node("n1").startswith(keys.nodes)
    assert keys.member("g", "n").startswith(keys.members("g"))
    assert keys.record("g").startswith(keys.groups)
    assert keys.intent("n").startswith(keys.intents)
    assert keys.fence("n").startswith(keys.fences)


def test_names_of_the_datasystems_keys() -> None:
    plain, named = DatasystemKeys(), DatasystemKeys("prod")
    assert (plain.root, named.root) == ("/datasystem/", "/prod/datasystem/")
    assert plain.worker("10.0.0.1:18481") == "/datasystem/cluster/10.0.0.1:18481"
    assert named.ring == "/prod/datasystem/ring/"


@pytest.mark.parametrize("bad", ["", "a/b", "/"])
def test_a_name_cannot_leave_its_place(bad: str) -> None:
    keys = ClusterKeys("prod")
    for make in (ClusterKeys, keys.node, keys.record, keys.fence, DatasystemKeys().worker):
        with pytest.raises(ValueError, match="cannot be part of a key"):
            make(bad)
    with pytest.raises(ValueError, match="every key"):
        Delete("", prefix=True)


def test_members_of_a_real_ring() -> None:
    for there in ("127.0.0.1:2184", "127.0.0.1:21840"):
        assert ring_has(RING, there)
    for absent in (
        "127.0.0.1:218",
        "27.0.0.1:2184",
        "127.0.0.1:21841",
        "059c3598-3a3d-4187-ba9d-f89ba3b3db80",
        "",
    ):
        assert not ring_has(RING, absent)
    assert not ring_has(b"", "127.0.0.1:2184")


def entry(address: str) -> bytes:
    """One member as protobuf writes it: field 2, a map entry with the address and a small message."""
    text = address.encode()
    body = b"\x0a" + bytes((len(text),)) + text + b"\x12\x04\x12\x02id"
    return b"\x12" + bytes((len(body),)) + body


addresses = st.builds(
    lambda octets, port: f"{'.'.join(map(str, octets))}:{port}",
    st.tuples(*[st.sampled_from([1, 10, 11, 110])] * 4),
    st.sampled_from([1848, 18481, 8481, 184, 11848]),
)


@given(st.sets(addresses, max_size=6), addresses)
def test_a_ring_has_its_members_and_nobody_else(members: set[str], asked: str) -> None:
    ring = b"".join(entry(address) for address in members)
    assert ring_has(ring, asked) == (asked in members)


@given(st.integers(128, 300))
def test_long_host_names_have_a_longer_length(length: int) -> None:
    address = "h" * (length - 5) + ":1848"
    ring = b"\x0a" + bytes((length & 0x7F | 0x80, length >> 7)) + address.encode() + b"\x12"
    assert ring_has(ring, address)
    assert not ring_has(ring, address[1:])


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_range_end_bounds_exactly_the_prefix(prefix: bytes, key: bytes) -> None:
    end = range_end(prefix)
    inside = key >= prefix and (end == b"\0" or key < end)
    assert inside == key.startswith(prefix)


contents = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 9), st.sampled_from([b"x", b"y"])))


@given(contents, contents)
def test_the_difference_turns_what_was_known_into_what_is_there(
    before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]
) -> None:
    known = {key: KeyValue(key, value, revision, revision, 1) for key, (revision, value) in before.items()}
    there = {key: KeyValue(key, value, revision, revision, 1) for key, (revision, value) in after.items()}
    events = difference(known, Listing("", 9, tuple(there[key] for key in sorted(there))))
    state = dict(known)
    for event in events:
        if event.kv is None:
            del state[event.key]
        else:
            assert state.get(event.key) != event.kv
            assert event.revision == event.kv.mod_revision
            state[event.key] = event.kv
    assert state == there
    assert [event.revision for event in events] == sorted(event.revision for event in events)
    assert len({event.key for event in events}) == len(events)


def test_backoff_grows_stays_bounded_and_differs() -> None:
    backoff = Backoff(0.1, 1.0)
    waits = [backoff.next_s() for _ in range(50)]
    assert 0.05 <= waits[0] <= 0.1
    assert all(0.5 <= wait <= 1.0 for wait in waits[4:])
    assert len(set(waits)) > 40
    backoff.reset()
    assert backoff.next_s() <= 0.1


WORD = st.tuples(st.sampled_from(["p", "d"]), st.sampled_from(["n0", "n1", "n2"]), st.none() | st.sampled_from(Phase))


@given(st.lists(WORD, max_size=12))
def test_events_at_once_are_the_same_as_one_by_one(words: list[tuple[str, str, Phase | None]]) -> None:
    keys = ClusterKeys("c")
    events = []
    for i, (group, node, phase) in enumerate(words):
        key = keys.member(group, node)
        value = b"" if phase is None else dump(member_dict(Member(i, phase)))
        events.append(Event(key, i, None if phase is None else KeyValue(key, value, i, i, 1)))
    before = fold(Board(), events[:3], keys)
    kept = {group: dict(part) for group, part in before.members.items()}
    one_by_one = before
    for event in events[3:]:
        one_by_one = fold(one_by_one, [event], keys)
    assert fold(before, events[3:], keys) == one_by_one
    assert before.members == kept, "a board that somebody holds does not change"
    assert (one_by_one.nodes, one_by_one.records) == (before.nodes, before.records)
    assert one_by_one.nodes is before.nodes, "who looks at the nodes knows that nothing has come"
