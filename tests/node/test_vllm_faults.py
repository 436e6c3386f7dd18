"""A data-parallel pair of real vLLM ranks that is killed, frozen, aborted and adopted. Slow: see `make test-vllm`.

All checks of ranks run with their defaults. Each fault restarts the pair once, which takes most of the time here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.support import vllm
from tests.support.keys import forgive
from tests.support.node import YrNode
from tests.support.serving import Watched
from tests.support.vllm import READY_S, RealNode, ask, check, generation, member
from yrnode.checks.progress import read_page
from yrnode.process import record, table
from yrnode.process.instance import mapped_shm, members_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
RANKS = ("rank/serve/0", "rank/serve/1")
QUIET_S = 10.0
"""From here on the progress check calls a stand a stand."""


@pytest.fixture(scope="module")
def pair() -> Iterator[RealNode]:
    """Small steps, so that a prompt takes long: 16 tokens each."""
    lab = vllm.lab_env() | {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
    args = {"max-model-len": 8192, "max-num-batched-tokens": 16}
    with vllm.running(vllm.real(lab, model="tiny-moe", ranks=2, args=args)) as node:
        yield node


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


class Fault:
    """Inject a fault in the block: at its end the group has been restarted once, and nothing old is left."""

    def __init__(self, node: RealNode, what: str) -> None:
        self.node, self.what = node, what
        self.ranks: list[str] = node.status()["groups"]["serve"]["members"]

    def __enter__(self) -> Fault:
        node = self.node
        node.wait("all processes known", lambda: all("Worker" in check(node, r, "processes")[1] for r in self.ranks))
        self.n, self.pids, self.seq = generation(node), node.pids(), node.events()[-1]["seq"]
        leaders = {self.pids[r] for r in self.ranks}
        self.old = [p for leader in leaders for p in vllm.session(leader)]
        node.shm.leaders |= leaders
        self.shm = {n for p in self.old for n in mapped_shm(p.pid) if os.path.exists(n)}
        assert len(self.shm) >= 2 * len(leaders)
        return self

    def now(self) -> None:
        """From here on it counts."""
        self.at, self.began = time.time(), time.monotonic()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            return
        node, n, ranks = self.node, self.n, self.ranks
        node.wait("the bump", lambda: generation(node) > n, 90)
        self.cause: str = node.status()["groups"]["serve"]["cause"]
        node.wait("an end", lambda: self._over(node.status()), READY_S)
        took = time.monotonic() - self.began
        (bump,) = self._since("bump", "serve")
        self.seen = bump["at"] - self.at
        gone = max(e["at"] for e in self._since("rest", *ranks)) - bump["at"]
        left = node.shm.left()
        print(f"\n{self.what}: seen after {self.seen:.2f} s, gone {gone:.1f} s later, ready after {took:.0f} s;")
        print(f"  {len(self.shm)} files of shared memory, {len(left)} left; {self.cause}")
        assert generation(node) == n + 1
        assert sorted(e["target"] for e in self._since("start")) == ranks, "each once, and nothing else"
        kept = [{n: p for n, p in pids.items() if n not in ranks} for pids in (self.pids, node.pids())]
        assert kept[0] == kept[1]
        assert [str(p) for p in self.old if table.alive(p)] == []
        assert not [n for n in self.shm if os.path.exists(n)]
        assert left == set()

    def _over(self, status: dict[str, Any]) -> bool:
        group = status["groups"].get("serve", {})
        assert group.get("stage") != "failed", group
        return status["ready"] and group["generation"] > self.n

    def _since(self, what: str, *targets: str) -> list[dict[str, Any]]:
        new = [e for e in self.node.events() if e["seq"] > self.seq and e["what"] == what]
        return [e for e in new if not targets or e["target"] in targets]


class Quiet(Watched):
    """The block must bring no failing verdict of any rank's check, and no restart."""

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        assert {line for line in self.failed if line.startswith(RANKS)} == set()


def send(base: str, **body: Any) -> socket.socket:
    """A completion that nobody waits for."""
    host, _, port = base.partition("//")[2].partition(":")
    words = json.dumps({"model": "tiny", "ignore_eos": True, **body}).encode()
    client = socket.create_connection((host, int(port)))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    client.sendall(f"{head}Content-Length: {len(words)}\r\n\r\n".encode() + words)
    return client


def moved(before: bytes, after: bytes) -> set[str]:
    old, new = vllm.series(before), vllm.series(after)
    return {name.partition("{")[0].removeprefix("vllm:") for name, value in new.items() if old.get(name) != value}


# the progress ledger


@pytest.mark.parametrize(("prompt_tokens", "tokens"), [(5000, 1), (10, 600)], ids=["prefill", "generation"])
def test_long_work_moves_the_ledger(
    pair: RealNode, pool: ThreadPoolExecutor, prompt_tokens: int, tokens: int
) -> None:
    base = vllm.url(pair, RANKS[1])
    prompt = " ".join(str(time.time_ns() + i)[-7:] for i in range(prompt_tokens // 8))
    names: dict[str, int] = {}
    with Quiet(pair):
        began = time.monotonic()
        call = pool.submit(ask, base, 300, prompt=prompt, max_tokens=tokens)
        pair.wait("the request", lambda: vllm.load(base) == 1, 10)
        page, stood_since, longest = vllm.page(base), time.monotonic(), 0.0
        while not call.done():
            time.sleep(0.3)
            now = vllm.page(base)
            for name in moved(page, now):
                names[name] = names.get(name, 0) + 1
            longest = max(longest, time.monotonic() - stood_since)
            if read_page(now)[0] != read_page(page)[0]:
                stood_since = time.monotonic()
            page = now
        took = time.monotonic() - began
    usage = call.result()["usage"]
    print(
        f"\n{usage['prompt_tokens']} + {usage['completion_tokens']} tokens in {took:.1f} s, "
        f"longest stand {longest:.1f} s; moved: { {k: v for k, v in names.items() if v > 1} }"
    )
    assert took > QUIET_S, "it must last longer than a stand may"
    assert longest < QUIET_S


@pytest.mark.parametrize("stream", [False, True])
def test_an_abort_is_no_hang(pair: RealNode, stream: bool) -> None:
    base = vllm.url(pair, RANKS[1])
    clients = []
    with Quiet(pair):
        for i in range(3):
            clients.append(send(base, prompt=f"{i} {time.time_ns()}", max_tokens=4000, stream=stream))
        pair.wait("load", lambda: check(pair, RANKS[1], "progress")[1] == "3 in flight, moving", 30)
        before = vllm.page(base)
        for client in clients:
            client.close()
        began = time.monotonic()
        pair.wait("no load", lambda: vllm.load(base) == 0, 10)
        unloaded = time.monotonic() - began
        pair.wait("idle", lambda: check(pair, RANKS[1], "progress") == ("ok", "idle"), 10)
        first = vllm.page(base)
        pair.wait("longer than a stand may last", lambda: time.monotonic() - began > QUIET_S + 5, 60)
        last = vllm.page(base)
        ask(base, 30)
    print(
        f"\nabort, stream={stream}: /load 0 after {unloaded:.2f} s; moved by then: {sorted(moved(before, first))}, "
        f"afterwards: {sorted(moved(first, last))}"
    )


# faults


@pytest.mark.parametrize(("rank", "title"), [(RANKS[0], ""), (RANKS[1], "VLLM::EngineC")])
def test_a_killed_process_restarts_the_group_once(pair: RealNode, rank: str, title: str) -> None:
    kill(pair, rank, title)


def kill(node: RealNode, rank: str, title: str) -> None:
    with Fault(node, f"{title or 'vllm serve'} of {rank} killed") as fault:
        victim = member(node, rank, title)
        fault.now()
        os.kill(victim.pid, signal.SIGKILL)
    assert fault.seen < 1.0
    assert fault.cause.startswith(f"{rank}: ")
    assert (f"gone: {victim.comm} (pid {victim.pid})" if title else "killed by SIGKILL") in fault.cause


def test_a_new_daemon_takes_over_what_runs(pair: RealNode) -> None:
    take_over(pair)


def take_over(node: YrNode) -> None:
    before, n, seq = node.pids(), generation(node), node.events()[-1]["seq"]
    ranks = [r for r in RANKS if r in before]
    members = {r: {p.pid for p in vllm.session(before[r])} for r in ranks}
    node.kill()
    for rank in ranks:
        directory, log = node.dir / "state" / rank.replace("/", "-"), node.dir / f"log/{rank.replace('/', '-')}.log"
        kept = record.load(record.path_of(node.dir / "run", rank))
        assert {p.pid for p in members_of(kept, directory, log)} == members[rank]
    began = time.monotonic()
    node.start()
    node.wait("the same ready again", lambda: node.status()["ready"], 30)
    print(f"\na new daemon has taken over after {time.monotonic() - began:.1f} s: {before}")
    assert (node.pids(), generation(node)) == (before, n)
    # the third fault in a row would be the last: hence the order of this file's tests
    forgive(node)
    node.wait("its checks", lambda: all(check(node, r, "canary")[0] == "ok" for r in ranks), 60)
    known = [check(node, r, "processes") for r in ranks]
    assert [(v, "EngineCor" in e) for v, e in known] == [("ok", True)] * len(ranks)
    assert (node.pids(), generation(node)) == (before, n)
    acted = [e for e in node.events() if e["seq"] > seq and e["what"] in ("start", "stop", "clean", "bump")]
    assert acted == []
    assert ask(vllm.url(node, ranks[-1]), 60)["usage"]["completion_tokens"] == 4


def test_a_killed_worker_process_restarts_the_group_once(pair: RealNode) -> None:
    kill(pair, RANKS[0], "VLLM::Worker")


def test_an_engine_core_frozen_under_load(pair: RealNode, pool: ThreadPoolExecutor) -> None:
    freeze(pair, pool, 2)


def freeze(pair: RealNode, pool: ThreadPoolExecutor, load: int) -> None:
    """With `load` requests in flight on each rank."""
    calls: list[Future[Any]] = []
    with Fault(pair, f"EngineCore of {RANKS[1]} stopped, {2 * load} requests in flight") as fault:
        core = member(pair, RANKS[1], "VLLM::EngineC")
        if load:
            bases = [vllm.url(pair, r) for r in RANKS]
            calls = [pool.submit(ask, b, 60, max_tokens=4000) for b in bases for _ in range(load)]
            pair.wait("load", lambda: all(vllm.load(b) == load for b in bases), 30)
            pair.wait("movement", lambda: all(check(pair, r, "progress")[1].endswith("moving") for r in RANKS), 30)
        fault.now()
        os.kill(core.pid, signal.SIGSTOP)
    assert fault.seen < 60
    assert fault.cause.startswith(f"{RANKS[1]}: the engine hangs: ")
    assert f"{core.comm} (pid {core.pid}, state T)" in fault.cause
    assert not [c for c in calls if c.exception(60) is None and c.result()["choices"][0]["finish_reason"] == "length"]


def test_a_daemon_and_an_api_server_killed_together(pair: RealNode) -> None:
    both_die(pair, RANKS[0])


def both_die(node: RealNode, rank: str) -> None:
    forgive(node)
    with Fault(node, f"daemon and {rank}'s vllm serve killed together") as fault:
        leader = member(node, rank, "")
        orphans = [member(node, rank, title) for title in ("VLLM::EngineC", "VLLM::Worker")]
        node.kill()
        os.kill(leader.pid, signal.SIGKILL)
        assert [p.comm for p in orphans if not table.alive(p)] == []
        fault.now()
        node.start()
        node.wait("an answer", lambda: node.status()["components"], 30)
    assert fault.cause.startswith(f"{rank}: ")


def test_an_idle_engine_core_frozen(pair: RealNode, pool: ThreadPoolExecutor) -> None:
    freeze(pair, pool, 0)


def test_a_stop_leaves_nothing(pair: RealNode) -> None:
    began = time.monotonic()
    assert pair.stop(120) == 0
    print(f"\nstopped after {time.monotonic() - began:.1f} s")
    assert pair.left() == []


# process titles that erase the environment, and with it the mark

ERASE = "import setproctitle as s; s.setproctitle(s.getproctitle())"


@pytest.fixture(scope="module")
def unmarked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """vLLM alone sets titles so late that setproctitle leaves the end of the environment; here it comes earlier."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(ERASE)
    lab = vllm.lab_env() | {"PYTHONPATH": str(site)}
    with vllm.running(vllm.real(lab, more="    unset: [SPT_NOENV]\n")) as node:
        yield node


def test_without_environ_a_new_daemon_takes_over_by_the_second_proof(unmarked: RealNode) -> None:
    leader = unmarked.pids()[RANKS[0]]
    assert {table.marks(p.pid) for p in vllm.session(leader)} == {("", "")}
    take_over(unmarked)


def test_without_environ_a_daemon_and_an_api_server_killed_together(unmarked: RealNode) -> None:
    both_die(unmarked, RANKS[0])
