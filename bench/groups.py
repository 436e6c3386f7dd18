"""How fast nodes follow each other: the real coordination over a real etcd, without components' processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import IO

from bench.proc import cpu_s
from bench.result import Peer, Row
from bench.sleepers import Words, wait_all
from bench.store import NOTE, deployed_etcd
from tests.support.agent import Agent, AgentProcess, command, until

ROOT = Path(__file__).resolve().parents[1]
NAMES_8 = ("group-stop-8", "go-8")
NAMES_64 = ("group-stop-64",)
NAMES_256 = ("group-stop-256",)
NAMES_LOSS = ("node-loss-seen",)
BUMPS_8 = 100
BUMP_S = 20.0
START_S = 120.0
FOR_S = {64: 20.0, 256: 40.0}
"""256 nodes that share two cores take a minute and more from a bump until all are ready again."""
LIMIT_S = 60.0
"""A bump whose last stop has not come by then is a sample of so much."""
SETTLE_S = 60.0
STEADY, QUIET = 0.2, 0.4
"""Of the cores: 256 quiet nodes take a sixth of two. With words to read they wait for etcd too, so a half is busy."""
STOP_S = 1.0
"""A rank takes at least so long to end: the words about that come when all have begun to stop."""
PROCESSES = 2
"""As many as the cores: agents that share a process take turns, as they would on the cores."""
LEASE_S = 5.0
KILLS = 3
PATRONI = Peer("Patroni", why="needs PostgreSQL; its loop looks each 10 s, by its documentation")
HERE = f"{NOTE}; each node's own record is in memory, since they would not share a disk"


class Hosts:
    """`count` agents in `processes` processes. `at[move][node]`: when it was last made; `life[node]`: its
    number, stage and last move."""

    def __init__(self, url: str, where: Path, count: int, processes: int, stop_s: float, probes: bool) -> None:
        self.url = url
        self.names = [f"n{i}" for i in range(count)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stdin: dict[str, IO[bytes]] = {}
        self._words: list[Words] = []
        self.at: dict[str, dict[str, float]] = {"stop": {}, "clean": {}, "start": {}, "ready": {}}
        self.life: dict[str, tuple[int, str, str]] = {}
        for i in range(processes):
            first, last = i * count // processes, (i + 1) * count // processes
            argv = command(url, where, stop_s, self.names, self.names[first:last], probes=probes)
            process = subprocess.Popen(
                argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            assert process.stdin is not None
            assert process.stdout is not None
            self._processes.append(process)
            self._words.append(Words(process.stdout.fileno()))
            self._stdin |= dict.fromkeys(self.names[first:last], process.stdin)

    def take(self) -> None:
        for words in self._words:
            for _, line in words.lines:
                name, move, at, n, stage = line.split()
                if move not in self.at:
                    continue
                self.at[move][name] = float(at)
                self.life[name] = (int(n), stage, move)
            words.lines.clear()

    def ready(self, n: int) -> bool:
        self.take()
        return len(self.life) == len(self.names) and all(x == (n, "go", "ready") for x in self.life.values())

    def stopped(self, since: float) -> bool:
        """Every node has begun to stop since then."""
        self.take()
        return len(self.at["stop"]) == len(self.names) and min(self.at["stop"].values()) >= since

    def wait(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        if not wait_all(self._words, condition, seconds):
            late = sum(x[2] != "ready" for x in self.life.values())
            raise TimeoutError(f"{what}: not within {seconds:g} s; {late} of {len(self.names)} are not ready")

    def settle(self, seconds: float) -> bool:
        """Until they have read what all have told them: else a bump waits behind the words of the life before. That
        is where two seconds in a row take about as much CPU, and not all that there is; whether it was in time."""
        cores = min(len(self._processes), len(os.sched_getaffinity(0)))
        until, took = time.monotonic() + seconds, [float(cores)]
        while time.monotonic() < until:
            before, began = self.cpu_s(), time.monotonic()
            wait_all(self._words, lambda: False, 1.0)
            took.append((self.cpu_s() - before) / (time.monotonic() - began))
            if steady(took[-2], took[-1], cores):
                return True
        return False

    def cpu_s(self) -> float:
        """Of all of them, in seconds."""
        return sum(cpu_s(p.pid) for p in self._processes)

    def bump(self, name: str) -> float:
        """Ask this node for a restart of the group; when it was asked, monotonic seconds."""
        began = time.monotonic()
        self._stdin[name].write(f"restart {name}\n".encode())
        self._stdin[name].flush()
        return began

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def steady(before: float, now: float, cores: int) -> bool:
    """Whether the shares of the cores that two seconds have taken are about the same, and few."""
    return now < QUIET * cores and abs(now - before) <= STEADY * max(before, now, STEADY)


@contextlib.contextmanager
def hosts(
    count: int, processes: int, stop_s: float = 0.0, *, probes: bool = False, start_s: float = START_S
) -> Iterator[Hosts]:
    # each node has a disk of its own: nodes that share one wait for one another's fsync. etcd's is a real one
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    where = Path(tempfile.mkdtemp(prefix="yrb-", dir=memory))
    try:
        with deployed_etcd() as etcd:
            found = Hosts(etcd.url, where, count, processes, stop_s, probes)
            try:
                found.wait("all ready", lambda: found.ready(1), start_s)
                yield found
            finally:
                found.close()
    finally:
        shutil.rmtree(where, ignore_errors=True)


def bumps(found: Hosts, count: int) -> tuple[list[float], list[float], str]:
    """Milliseconds of each bump: until the last one stops; from all clean until all start. One that does not come to
    its end is a sample of its limit, and the last one; what is to be said of it."""
    stops: list[float] = []
    goes: list[float] = []
    limit = BUMP_S * 1000
    for i in range(count):
        n = found.life["n0"][0] + 1
        began = found.bump(found.names[i * 7 % len(found.names)])
        try:
            found.wait(f"life {n}", lambda n=n: found.ready(n), BUMP_S)  # type: ignore[misc]
        except TimeoutError as e:
            stops.append((max(found.at["stop"].values()) - began) * 1000 if found.stopped(began) else limit)
            return stops, [*goes, limit], f"; {e}"
        stops.append((max(found.at["stop"].values()) - began) * 1000)
        goes.append((max(found.at["start"].values()) - max(found.at["clean"].values())) * 1000)
    return stops, goes, ""


def of_8(wanted: Set[str]) -> Iterator[Row]:
    with hosts(8, 8) as found:
        stops, goes, late = bumps(found, BUMPS_8)
    note = f"8 processes on this host's cores; {HERE}{late}"
    yield Row("group-stop-8", tuple(stops), (PATRONI,), note)
    yield Row("go-8", tuple(goes), (PATRONI,), note)


def of_64(wanted: Set[str]) -> Iterator[Row]:
    yield _many("group-stop-64", 64)


def of_256(wanted: Set[str]) -> Iterator[Row]:
    yield _many("group-stop-256", 256)


def _many(name: str, count: int) -> Row:
    """No bump begins after its time: every word of so many nodes goes to each of them."""
    stops: list[float] = []
    late = restless = 0
    with hosts(count, PROCESSES, STOP_S) as found:
        over = time.monotonic() + FOR_S[count]
        while not stops or time.monotonic() < over:
            restless += not found.settle(SETTLE_S)
            n = found.life["n0"][0] + 1
            began = found.bump(found.names[len(stops) * 7 % count])
            try:
                found.wait(f"life {n}", lambda: found.stopped(began), LIMIT_S)  # noqa: B023
            except TimeoutError:
                late += 1
                stops.append(LIMIT_S * 1000)
                break
            stops.append((max(found.at["stop"].values()) - began) * 1000)
            with contextlib.suppress(TimeoutError):
                found.wait("all ready", lambda: found.ready(n), max(0.0, over - time.monotonic()))  # noqa: B023
    note = f"{count} agents in {PROCESSES} processes on this host's cores; ranks take {STOP_S:g} s to end; {HERE}"
    if late:
        note += f"; {late} not within {LIMIT_S:g} s, which is its sample"
    if restless:
        note += f"; {restless} began while the words of the life before were still read"
    return Row(name, tuple(stops), (PATRONI,), note)


def loss(wanted: Set[str]) -> Iterator[Row]:
    """Four of eight nodes are killed at once, and that several times; each of the others sees each of them."""
    took: list[float] = []
    for _ in range(KILLS):
        took += asyncio.run(_loss())
    yield Row("node-loss-seen", tuple(took), (PATRONI,), f"{KILLS} times 4 of 8 killed at once, seen by 4; {NOTE}")


async def _loss() -> list[float]:
    names = tuple(f"n{i}" for i in range(8))
    with contextlib.ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yrb-", dir="/tmp")))
        etcd = stack.enter_context(deployed_etcd())
        here = [Agent(name, names, etcd.url, where) for name in names[:4]]
        there = [AgentProcess(name, names, etcd.url, where) for name in names[4:]]
        every: tuple[Agent | AgentProcess, ...] = (*here, *there)
        try:
            for agent in every:
                await agent.start()
            await until("all ready", lambda: all(a.ready for a in every), 60)
            return await _kill(here, there)
        finally:
            await asyncio.gather(*(agent.close() for agent in every))


async def _kill(here: list[Agent], there: list[AgentProcess]) -> list[float]:
    began = time.monotonic()
    for process in there:
        process.kill()
    seen: dict[tuple[str, str], float] = {}

    def all_seen() -> bool:
        for agent in here:
            board = agent.world.board.nodes
            for dead in there:
                if agent.world.fresh and dead.name not in board:
                    seen.setdefault((agent.name, dead.name), time.monotonic() - began)
        return len(seen) == len(here) * len(there)

    await until("all seen", all_seen, LEASE_S + 10)
    return list(seen.values())
