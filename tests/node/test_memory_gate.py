"""A worker dies while ranks map its memory, on the real parts: the next one starts beside them, or with them.

The node sees another /proc/meminfo, as in a container whose memory is shown by LXCFS: what it calls available is a
budget less what the node's own processes hold of datasystem memory at that moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import YrNode, cluster_text, yrnode
from tests.support.serving import ask, url
from yrnode.process import table

pytestmark = pytest.mark.long

RANKS = ("rank/serve/0", "rank/serve/1")
MIB = 1024**2
NEED = 256
# a block of 16 tokens takes 1 MiB of the cache
ARGS = ", standin-block-bytes: 1048576"
# one that goes on using what it has read does not let go of a dead worker's memory
KEEP = ARGS + ", standin-keep-read: true"
BLOCKS = 30
OVERLAY = 'mount --bind "$0" /proc/meminfo && exec "$@"'


def held(node: YrNode) -> int:
    """MiB of datasystem memory that processes of the node map, dead workers' included."""
    home, taken = str(node.dir / "state"), {}
    for proc in table.scan():
        if table.marks(proc.pid)[1] == home:
            with contextlib.suppress(OSError), open(f"/proc/{proc.pid}/maps") as lines:
                for line in lines:
                    if "memfd:datasystem" in line:
                        span, _, _, _, inode, _ = line.split(maxsplit=5)
                        taken[inode] = os.stat(f"/proc/{proc.pid}/map_files/{span}").st_blocks * 512
    return sum(taken.values()) // MIB


class Account:
    """Rewrites the overlay's numbers in place, all of one width: nobody ever reads half of a file."""

    def __init__(self, node: YrNode) -> None:
        self.node, self.path = node, node.dir / "meminfo"
        self.budget, self.total = 100_000, 100_000
        self._over = threading.Event()
        self.write()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def write(self) -> None:
        free = max(0, self.budget - held(self.node))
        text = f"MemTotal: {self.total * 1024:12d} kB\nMemAvailable: {free * 1024:12d} kB\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, text.encode(), 0)
        os.close(fd)

    def _run(self) -> None:
        while not self._over.wait(0.05):
            self.write()

    def set(self, budget: int = 100_000, total: int = 100_000) -> None:
        self.budget, self.total = budget, total
        self.write()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def limited(extra_args: str) -> Iterator[tuple[YrNode, Account]]:
    """A node that is ready, and the account of its memory."""
    if os.geteuid() != 0:
        pytest.skip("another /proc/meminfo needs root")
    with yrnode(cluster_text(extra_args=extra_args), start=False) as node:
        account = Account(node)
        prefix = ["unshare", "-m", "--propagation", "private", "sh", "-c", OVERLAY, str(account.path)]
        try:
            if why := subprocess.run([*prefix, "true"], capture_output=True, check=False).stderr:
                pytest.skip(f"no mount here: {why.decode().strip()}")
            node.start(prefix=prefix)
            node.wait_ready()
            yield node, account
        finally:
            account.close()


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[YrNode, Account]]:
    with limited(KEEP) as found:
        yield found


@pytest.fixture
def node(both: tuple[YrNode, Account]) -> YrNode:
    return both[0]


@pytest.fixture
def account(both: tuple[YrNode, Account]) -> Iterator[Account]:
    node, found = both
    found.set()
    node.wait_ready()
    yield found
    found.set()


def fill(node: YrNode) -> int:
    """Each rank puts some tens of MiB into the cache, and reads what the other has put. MiB that are mapped then."""
    for writer, reader in (RANKS, RANKS[::-1]):
        before, first = held(node), time.time_ns() % 10**9
        prompt = " ".join(str(first + i) for i in range(16 * BLOCKS))
        ask(url(node, writer), 30, prompt=prompt, max_tokens=1)
        seen = [before]

        def settled(least: int = before + BLOCKS - 5, seen: list[int] = seen) -> bool:
            """A rank that is in the middle of putting would go on until its time is out."""
            seen.append(held(node))
            return seen[-1] >= least and len(seen) > 40 and seen[-40] == seen[-1]

        node.wait("the cache filled", settled, 60)
        ask(url(node, reader), 30, prompt=prompt, max_tokens=1)
    return held(node)


def kill_worker(node: YrNode) -> dict[str, int]:
    before = node.pids()
    os.kill(before["worker"], signal.SIGKILL)
    node.wait("it seen", lambda: node.component("worker")["state"] not in ("ready", "unhealthy"), 10)
    return before


def worker_again(node: YrNode, before: dict[str, int]) -> dict[str, int]:
    def again() -> bool:
        s = node.status()
        return s["ready"] and s["components"]["worker"]["pid"] not in (None, before["worker"])

    node.wait("the node ready with another worker", again, 60)
    return node.pids()


def serving(node: YrNode) -> dict[str, object]:
    return node.status()["groups"]["serve"]


def test_where_memory_allows_the_worker_starts_alone(node: YrNode, account: Account) -> None:
    mapped = fill(node)
    n = serving(node)["generation"]
    account.set(budget=mapped + NEED + 10)
    before = kill_worker(node)
    after = worker_again(node, before)
    assert [after[r] for r in RANKS] == [before[r] for r in RANKS]
    assert serving(node)["generation"] == n
    assert held(node) >= mapped, "beside what they still use"


def test_where_it_does_not_the_ranks_that_map_it_restart_with_it(node: YrNode, account: Account) -> None:
    mapped = fill(node)
    n = serving(node)["generation"]
    account.set(budget=NEED + mapped // 2)
    before = kill_worker(node)
    node.wait("the bump", lambda: serving(node)["generation"] != n, 40)
    after = worker_again(node, before)
    assert not {before[r] for r in RANKS} & {after[r] for r in RANKS}
    events = node.events()
    bump = [e for e in events if e["target"] == "serve" and e["what"] == "bump"][-1]
    assert (bump["reason"], bump["culprit"]) == ("memory", "worker")
    assert bump["text"] == "no memory for a second worker beside what rank/serve/0, rank/serve/1 still map"
    numbers = [int(w) for w in bump["evidence"].replace(",", "").split() if w.isdigit()]
    print(f"\n{bump['text']} ({bump['evidence']})")
    assert abs(numbers[0] - mapped) <= 5, "it says what is mapped"
    assert (numbers[1] < NEED, numbers[2]) == (True, NEED)
    # it started when they had let go, and it is nobody's fault but the memory's
    started = {name: [e["seq"] for e in events if (e["target"], e["what"]) == (name, "start")] for name in before}
    assert bump["seq"] < started["worker"][-1] < started["rank/serve/0"][-1]
    assert started["worker"][-2] < bump["seq"], "once"
    assert (serving(node)["generation"], serving(node)["fails"]) == (n + 1, 0)


def test_where_it_would_not_fit_without_them_either_it_waits_and_says_so(node: YrNode, account: Account) -> None:
    fill(node)
    n = serving(node)["generation"]
    account.set(budget=NEED - 50)
    before = kill_worker(node)
    words = "end what takes it, or lower datasystem.shared_memory"
    reason = node.wait("the reason", lambda: (r := node.component("worker")["reason"]) and words in r and r, 20)
    print(f"\n{reason}")
    assert reason.startswith("memory: not started: no memory for a second worker beside what rank/serve/0, rank")
    assert node.component("worker")["state"] == "cleaning"
    code, body = node.get("/readyz")
    assert code == 503
    assert words in body
    account.set()
    after = worker_again(node, before)
    assert [after[r] for r in RANKS] == [before[r] for r in RANKS]
    assert serving(node)["generation"] == n


def test_more_than_there_is_at_all_is_a_configuration_error(node: YrNode, account: Account) -> None:
    account.set(budget=NEED - 50, total=NEED - 1)
    before = kill_worker(node)
    node.wait("it given up", lambda: node.component("worker")["state"] == "failed", 20)
    reason = node.component("worker")["reason"]
    assert reason.startswith(
        "configuration: datasystem.shared_memory is more than this node has: lower it (256 of 255"
    )
    account.set()
    assert node.cli("restart", "worker", "--yes").returncode == 0
    after = worker_again(node, before)
    assert [after[r] for r in RANKS] == [before[r] for r in RANKS]


def test_an_operator_can_stop_a_worker_that_waits(node: YrNode, account: Account) -> None:
    account.set(budget=NEED - 50)
    before = kill_worker(node)
    node.wait("it waiting", lambda: "not started" in node.component("worker")["reason"], 20)
    assert node.cli("stop", "worker", "--yes").returncode == 0
    node.wait("it stopped", lambda: node.component("worker")["state"] == "stopped", 20)
    account.set()
    assert node.cli("start", "worker", "--yes").returncode == 0
    after = worker_again(node, before)
    assert [after[r] for r in RANKS] == [before[r] for r in RANKS]


@pytest.mark.slow
def test_clients_that_let_go_in_time_cost_no_rank() -> None:
    with limited(ARGS) as (node, account):
        mapped = fill(node)
        account.set(budget=NEED + mapped // 2)
        before, began = kill_worker(node), time.monotonic()
        node.wait("it waiting", lambda: "still map" in node.component("worker")["reason"], 20)
        node.wait("it starting", lambda: node.component("worker")["state"] == "starting", 20)
        print(f"\n{mapped} MiB let go {time.monotonic() - began:.1f} s after the worker's death")
        after = worker_again(node, before)
        assert [after[r] for r in RANKS] == [before[r] for r in RANKS]
        assert serving(node)["generation"] == 1


@pytest.mark.slow
def test_on_worker_restart_group(tmp_path: Path) -> None:
    text = cluster_text().replace("shared_memory: 256MB", "shared_memory: 256MB, on_worker_restart: group")
    with yrnode(text) as node:
        node.wait_ready()
        before = kill_worker(node)
        node.wait("the bump", lambda: serving(node)["generation"] == 2, 60)
        after = worker_again(node, before)
        assert not {before[r] for r in RANKS} & {after[r] for r in RANKS}
        assert after["etcd"] == before["etcd"]
        cause = serving(node)["cause"]
        assert cause.startswith("worker: worker has restarted, and datasystem.on_worker_restart is group")
        assert "killed by SIGKILL" in cause
        assert (serving(node)["stage"], serving(node)["fails"]) == ("go", 0)
        # another daemon takes over, with its record of the worker lost: the worker is the same
        node.kill()
        (node.dir / "run/worker.json").unlink()
        node.start()
        node.wait_ready()
        assert node.pids() == after
        # a word of an operator's does the same, and says so before
        asked = node.cli("restart", "worker", "--dry-run")
        assert all(name in asked.stdout.splitlines()[0] for name in ("worker", *RANKS)), asked.stdout
        assert node.cli("restart", "worker", "--yes").returncode == 0
        node.wait("the bump", lambda: serving(node)["generation"] == 3, 60)
        last = worker_again(node, after)
        assert not set(last.values()) & {after[r] for r in RANKS}
        assert last["etcd"] == before["etcd"]
