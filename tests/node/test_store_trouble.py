"""A store that is cut off, half-open, late, or answers with something else: nothing is stopped or started.

The store is one that somebody else runs, so that the worker reaches it through the same proxy.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.store.conftest import until
from tests.store.test_gateway import MAY_HEAL
from tests.support.etcd import start_etcd
from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.proxy import Switched, http_answer
from yrnode.node import storewrites
from yrnode.node.storewrites import StoreWrites
from yrnode.node.world import World
from yrnode.store import Alarm, Status, Store, StoreUnavailable
from yrnode.telemetry.events import EventLog

pytestmark = pytest.mark.long


class Lab:
    def __init__(self, node: YrNode, proxy: Switched) -> None:
        self.node, self.proxy = node, proxy

    def what_happens(
        self, begin: Callable[[], None], seconds: float, end: Callable[[], None]
    ) -> list[tuple[str, str]]:
        """(target, what) of every event from the beginning until all is well again for a while."""
        last = self.node.events()[-1]["seq"]
        begin()
        time.sleep(seconds)
        end()
        self.node.wait("the store", lambda: self.node.status()["store"]["available"], 20)
        # the worker needs up to 10 s to register itself again, and serves no key for some of them
        self.node.wait("all good", self.all_good, 60)
        return [(e["target"], e["what"]) for e in self.node.events() if e["seq"] > last]

    def all_good(self) -> bool:
        status = self.node.status()
        checks = status["components"]["worker"]["checks"].values()
        return status["ready"] and all(c["verdict"] == "ok" for c in checks)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="yrs-", dir="/tmp") as directory, start_etcd(Path(directory)) as etcd:
        proxy = Switched(etcd.url)
        try:
            text = cluster_text(ranks=2)
            head, _, rest = text.partition("etcd: {")
            with yrnode(f"{head}etcd: {{external: ['{proxy.url}']}}{rest[rest.index(chr(10)) :]}") as node:
                node.wait_ready()
                yield Lab(node, proxy)
        finally:
            proxy.close()


def same(lab: Lab, before: dict[str, int]) -> bool:
    groups = lab.node.status()["groups"]
    return lab.node.pids() == before and groups["cache"]["generation"] == groups["serve"]["generation"] == 1


ONCE = [("store", "unavailable"), ("store", "available")]
# what a worker that is out of its ring for a moment looks like
FELT = {("worker", "unhealthy"), ("worker", "recover"), ("yrnode", "not-ready"), ("yrnode", "ready")}


def quiet(lab: Lab, begin: Callable[[], None], seconds: float, end: Callable[[], None]) -> None:
    before, last = lab.node.pids(), lab.node.events()[-1]["seq"]
    found = lab.what_happens(begin, seconds, end)
    assert [e for e in found if e[0] == "store"] == ONCE
    assert set(found) - set(ONCE) <= FELT, [e for e in lab.node.events() if e["seq"] > last and e["what"] == "stop"]
    assert same(lab, before)
    told = [e for e in lab.node.events() if e["target"] == "store"][-2:]
    assert told[0]["text"] == "the store does not answer"
    assert lab.proxy.url in told[0]["evidence"]
    assert told[1]["text"].startswith("the store answers again, after ")


@pytest.mark.parametrize("seconds", [2, 7])
def test_cut(lab: Lab, seconds: float) -> None:
    quiet(lab, lab.proxy.cut, seconds, lab.proxy.open)


def test_half_open(lab: Lab) -> None:
    quiet(lab, lab.proxy.hold, 7, lab.proxy.release)


def test_late(lab: Lab) -> None:
    quiet(lab, lambda: lab.proxy.delay(2.5), 7, lambda: lab.proxy.delay(0))


@pytest.mark.parametrize("answer", ["500 text", "503 html", "400 text", "200 html", "500 unknown code"])
def test_an_answer_that_is_none(lab: Lab, answer: str) -> None:
    def end() -> None:
        lab.proxy.cut()
        lab.proxy.open()

    quiet(lab, lambda: lab.proxy.say(http_answer(*MAY_HEAL[answer])), 3, end)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [4, 6, 12, 45])
def test_cut_longer(lab: Lab, seconds: float) -> None:
    quiet(lab, lab.proxy.cut, seconds, lab.proxy.open)


@pytest.mark.slow
def test_half_open_for_longer_than_any_threshold(lab: Lab) -> None:
    quiet(lab, lab.proxy.hold, 45, lab.proxy.release)


def test_a_rank_that_dies_meanwhile_waits_for_the_store(lab: Lab) -> None:
    """Last: it is the one that changes pids. Its group stops at once, and starts once when the store is back."""
    before = lab.node.pids()

    def begin() -> None:
        lab.proxy.cut()
        lab.node.wait("the outage", lambda: not lab.node.status()["store"]["available"], 20)
        os.kill(before["rank/serve/0"], signal.SIGKILL)
        waits = lab.node.wait("the wait", lambda: lab.node.component("rank/serve/0")["waiting_for"], 20)
        assert waits == ["store (unavailable)"]
        store = lab.node.status()["store"]
        assert (store["frozen_why"], store["frozen_since"]) == ("the store does not answer", store["since"])
        assert store["frozen"][0].startswith("serve: its restart waits, what is dead is stopped and cleaned here:")

    found = lab.what_happens(begin, 5, lab.proxy.open)
    assert [e for e in found if e[0] == "store"] == ONCE
    assert [e for e in found if e[0] == "serve"] == [("serve", "bump"), ("serve", "go")]
    assert not {("worker", w) for w in ("stop", "start", "clean")} & set(found)
    assert found.index(("rank/serve/0", "stop")) < found.index(("store", "available"))
    assert found.index(("store", "available")) < found.index(("serve", "go"))
    assert lab.node.pids()["worker"] == before["worker"]
    assert lab.node.status()["groups"]["serve"]["generation"] == 2
    assert lab.node.status()["store"]["frozen"] == []


# alarms, on a store that is made up


class Alarmed:
    def __init__(self) -> None:
        self.there: tuple[Alarm, ...] | Exception = ()
        self.asked = self.looked_up = 0

    async def alarms(self) -> tuple[Alarm, ...]:
        self.asked += 1
        if isinstance(self.there, Exception):
            raise self.there
        return self.there

    async def status(self) -> Status:
        self.looked_up += 1
        return Status("3.5.1", 1, 1, 35, 1, 1, 1, None, None, ())


async def test_an_alarm_is_told_once_and_outlives_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storewrites, "PERIOD_S", 0.01)
    store, world, events = Alarmed(), World({}), EventLog(tmp_path / "events.jsonl")
    woken: list[int] = []
    writes = StoreWrites(cast(Store, store), "etcdctl", world, events, lambda: woken.append(1))
    try:
        await until(lambda: store.asked >= 3)
        assert (world.store_refusal, woken, store.looked_up) == (None, [], 0)
        store.there = (Alarm(10, "NOSPACE"),)
        await until(lambda: world.store_refusal)
        first = world.store_refusal
        assert first is not None
        assert (first.text, len(first.cure), len(woken)) == ("alarm NOSPACE on member a", 3, 1)
        for silence in (StoreUnavailable("cut"), ZeroDivisionError("a defect")):
            store.there, asked = silence, store.asked
            await until(lambda asked=asked: store.asked >= asked + 3)
            assert world.store_refusal is not None
            assert world.store_refusal.since == first.since
        store.there = ()
        await until(lambda: world.store_refusal is None)
        told = [(e.what, e.text) for e in events.since(0)]
        assert [what for what, _ in told] == ["refuses-writes", "takes-writes"]
        assert told[0][1] == "the store refuses writes: alarm NOSPACE on member a"
    finally:
        await writes.close()
