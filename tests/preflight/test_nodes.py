"""Who differs in what is named, by the daemon's word or by the store's; and no check holds up the others."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import yrnode
from tests.preflight.build import look, verdicts
from tests.support.etcd import ETCD_35, free_port, start_etcd
from yrnode.model.board import PROTOCOL, Peer
from yrnode.policy.differs import differences
from yrnode.preflight import agreed, host, nodes
from yrnode.preflight.finding import Look, Once, good, refused
from yrnode.preflight.nodes import Other
from yrnode.store import codec
from yrnode.store.gateway import EtcdGateway
from yrnode.store.keys import ClusterKeys

OWN = Peer("a", version="1.0", digests={"serve": "x"}, facts={"model of serve": "m1", "vllm": "0.18.0"})


@pytest.mark.parametrize(
    ("peer", "lines"),
    [
        (Peer("b", version="1.0"), []),
        (Peer("b", version="1.0", digests={"serve": "x", "more": "z"}, facts={"CANN": "8.5.0"}), []),
        (Peer("b", version="1.0", digests={"serve": "y"}), ["the cluster file's group serve"]),
        (Peer("b", version="1.1"), ["version 1.1 instead of 1.0"]),
        (Peer("b", version="1.0", protocol=7), [f"protocol 7 instead of {PROTOCOL}"]),
        (Peer("b", version="1.0", facts={"model of serve": "m2"}), ["model of serve m2 instead of m1"]),
        (Peer("b", version="1.0", facts={"model of serve": "m1", "vllm": "0.9"}), ["vllm 0.9 instead of 0.18.0"]),
    ],
)
def test_differences(peer: Peer, lines: list[str]) -> None:
    assert differences(OWN, peer) == lines


def test_facts_travel_with_a_nodes_key_and_older_keys_have_none() -> None:
    value = codec.dump(codec.peer_dict(OWN))
    assert codec.read(codec.peer_of, value) == OWN
    old = {k: v for k, v in codec.peer_dict(OWN).items() if k != "facts"}
    assert codec.read(codec.peer_of, codec.dump(old)).facts == {}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, [("good", "0 of 2 seen, 2 not there yet, alike")]),
        ({"n1": Other()}, [("good", "1 of 2 seen, 1 not there yet, alike")]),
        ({"n1": Other(), "n2": Other(["version 2 instead of 1"])}, [("warning", "n2 has version 2 instead of 1")]),
    ],
)
def test_others_are_judged(others: dict[str, Other], expected: list[tuple[str, str]]) -> None:
    found = [f for f in nodes.judge(others, ("n0", "n1", "n2")) if f.name == nodes.NAME]
    assert [(f.verdict.value, f.found) for f in found] == expected


@pytest.mark.parametrize(
    ("offsets", "verdict", "words"),
    [
        ((None, None), "not here", ""),
        ((0.25, None), "good", "at most 0.25 s apart"),
        ((-0.5, 0.9), "good", "at most 0.90 s apart"),
        ((-3.0, 61.0), "warning", "n1 is 3.0 s behind, n2 is 61.0 s ahead"),
    ],
)
def test_clocks_are_judged(offsets: tuple[float | None, float | None], verdict: str, words: str) -> None:
    others = {f"n{i}": Other((), offset) for i, offset in enumerate(offsets, 1)}
    (found,) = (f for f in nodes.judge(others, ("n0", "n1", "n2")) if f.name == nodes.CLOCKS)
    assert found.verdict == verdict
    assert words in found.found


def test_what_the_daemon_says() -> None:
    told: dict[str, dict[str, object]] = {
        "n1": {"up": True, "differs": ["x"], "clock_offset_s": 1.5},
        "n2": {"up": False, "differs": [], "clock_offset_s": 9.0},
        # one of an earlier version
        "n3": {"up": True, "differs": []},
        "n4": {"up": None},
    }
    assert nodes.of_status(told) == {"n1": Other(["x"], 1.5), "n3": Other([], None)}


TWO = """
cluster: c
nodes: {n0: {address: 127.0.0.1}, n1: {address: 127.0.0.2}}
etcd: {external: [URL]}
groups: {serve: {ranks: {n0: 1, n1: 1}, model: MODEL, kv_connector: {ascend_store: {}}}}
bin: {vllm: [/bin/sh]}
"""


def test_the_store_is_asked_where_no_daemon_runs(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with start_etcd(tmp_path / "etcd", ETCD_35) as etcd:
        here = look(tmp_path, TWO.replace("URL", etcd.url).replace("MODEL", str(model)))
        assert verdicts(nodes.look(here)) == ["not here"]
        mine = nodes.own(here.host.cluster, agreed.facts(here))
        assert mine.facts["PYTHONHASHSEED of serve"] == "0"
        theirs = Peer("x", version=yrnode.__version__, digests=mine.digests, facts={**mine.facts})
        put(etcd.url, {"n0": mine, "n1": theirs})
        assert verdicts(nodes.look(here)) == ["good", "not here"]
        changed = {**mine.facts, "PYTHONHASHSEED of serve": "7", "model of serve": "0123456789ab"}
        put(etcd.url, {"n1": Peer("x", version="0.0", digests={**mine.digests, "cache": "y"}, facts=changed)})
        assert [f.found for f in nodes.look(here)][:-1] == [
            "n1 has the cluster file's group cache",
            f"n1 has version 0.0 instead of {yrnode.__version__}",
            "n1 has PYTHONHASHSEED of serve 7 instead of 0",
            f"n1 has model of serve 0123456789ab instead of {mine.facts['model of serve']}",
        ]


def put(url: str, peers: dict[str, Peer]) -> None:
    async def run() -> None:
        store, keys = EtcdGateway((url,), timeout_s=5.0), ClusterKeys("c")
        for name, peer in peers.items():
            await store.put(keys.node(name), codec.dump(codec.peer_dict(peer)))
        await store.close()

    asyncio.run(run())


def test_a_store_that_is_away_takes_its_time_and_no_more(tmp_path: Path) -> None:
    here = look(tmp_path, TWO.replace("URL", f"http://127.0.0.1:{free_port()}").replace("MODEL", "m"))
    began = time.monotonic()
    (found,) = nodes.look(here)
    assert (found.verdict, "the store does not answer" in found.found) == ("not here", True)
    assert time.monotonic() - began < nodes.STORE_S + 3


# all checks together


def test_no_check_holds_up_or_takes_away_the_others(tmp_path: Path) -> None:
    over = threading.Event()

    def hangs(at: Look) -> list[host.Finding]:
        over.wait(60)
        return []

    def breaks(at: Look) -> list[host.Finding]:
        raise ZeroDivisionError("x")

    checks = {"one": lambda at: [good("one", "fine")], "two": hangs, "three": breaks, "four": lambda at: []}
    began = time.monotonic()
    found = host.together(checks, look(tmp_path), 0.3)
    assert time.monotonic() - began < 5
    over.set()
    assert [(f.name, f.verdict.value) for f in found] == [("one", "good"), ("two", "warning"), ("three", "warning")]
    assert "no answer within" in found[1].found
    assert "ZeroDivisionError" in found[2].found


def test_a_line_is_found_and_cure_and_back() -> None:
    line = "disk full: 8 MB free, 64 MB needed; make room; or use another path"
    (found,) = refused("directories", [line])
    assert (found.found, found.cure) == ("disk full: 8 MB free, 64 MB needed", "make room; or use another path")
    assert found.line == line


def test_what_several_checks_ask_for_is_asked_once() -> None:
    once, asked = Once(), []

    def make() -> int:
        asked.append(1)
        time.sleep(0.05)
        return len(asked)

    threads = [threading.Thread(target=lambda: once.get("a", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (once.get("a", make), len(asked)) == (1, 1)
