"""A child is killed: when is it seen, when is there another one. The same children under each supervisor."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import peers
from bench.result import Peer, Row, peer
from bench.sleepers import Births, Words, wait_all
from tests.support.etcd import free_port, free_ports, start_etcd

ROOT = Path(__file__).resolve().parents[1]
NAMES = (
    *("child-death-seen", "child-death-seen-100", "adopted-death-seen", "adopted-death-seen-100"),
    *("respawn", "respawn-100", "respawn-adopted", "respawn-adopted-100"),
)
KILLS = 100
ADOPTED_KILLS = 30
PEER_KILLS = {"supervisord": 10, "circus": 6}
"""They take seconds."""
NOBODY = tuple(Peer(name, why="takes over nothing that runs") for name in PEER_KILLS)
LATE_S = 20.0


@dataclass
class Took:
    """Milliseconds from the kill of each child: until it was seen, until the next one's first word."""

    seen: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)


class Supervised:
    """A supervisor with its children. `seen`: what it says of a death, with the child's name in the first group; with
    `both` on either of its outputs."""

    def __init__(self, argv: Sequence[str], where: Path, seen: str, births: Births, both: bool = False) -> None:
        self._argv, self._where, self._seen, self.births = argv, where, re.compile(seen), births
        self._both = both
        self._err = where / "err.log"

    def start(self) -> None:
        env = {**os.environ, "BIRTHS": str(self.births.path)}
        with open(self._err, "ab") as err:
            self.process = subprocess.Popen(
                self._argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if self._both else err, start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        self.words = Words(self.process.stdout.fileno())

    def settle(self, ready: int, pattern: str, seconds: float = 60.0) -> None:
        """Until so many lines of this pattern have come."""
        found = re.compile(pattern)

        def all_there() -> bool:
            return sum(bool(found.search(x)) for _, x in self.words.lines) >= ready

        if not wait_all((self.births, self.words), all_there, seconds):
            raise TimeoutError(f"{self._argv[0]}: not {ready} times {pattern!r}: {self._err.read_text()[-500:]}")

    def born(self, names: Sequence[str], seconds: float = 60.0) -> None:
        """Until each of these children has said its first word."""
        if not wait_all((self.births, self.words), lambda: self.births.pids.keys() >= set(names), seconds):
            raise TimeoutError(f"{self._argv[0]}: not all children came: {self._err.read_text()[-500:]}")

    def kill_one(self, name: str, took: Took) -> None:
        self.births.read()
        before = self.births.pids[name]
        self.words.lines.clear()
        began = time.monotonic()
        os.kill(before, signal.SIGKILL)

        def seen() -> float | None:
            return next((at for at, x in self.words.lines if (m := self._seen.search(x)) and m[1] == name), None)

        def there() -> bool:
            return self.births.pids[name] != before and seen() is not None

        if not wait_all((self.births, self.words), there, LATE_S):
            raise TimeoutError(f"{self._argv[0]}: {name} is not there again")
        at = seen()
        assert at is not None
        took.seen.append((at - began) * 1000)
        took.again.append((self.births.at[name] - began) * 1000)

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def directory() -> Iterator[tuple[Path, Births]]:
    where = Path(tempfile.mkdtemp(prefix="yrb-", dir="/tmp"))
    births = Births(where / "births")
    try:
        yield where, births
    finally:
        births.read()
        for pid in births.pids.values():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if f"BIRTHS={births.path}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        births.close()
        shutil.rmtree(where, ignore_errors=True)


def own(url: str, count: int) -> tuple[Took, Took]:
    """Of children that the daemon has started, and of children that it has taken over."""
    mine, adopted = Took(), Took()
    names = [f"c{i}" for i in range(count)]
    with directory() as (where, births):
        daemon = Supervised(
            (sys.executable, "-m", "bench.fleet", str(where), url, str(count)), where, r"^(\S+) stop ", births
        )
        daemon.start()
        try:
            daemon.settle(count, " ready ")
            for i in range(KILLS):
                daemon.kill_one(names[i % count], mine)
                daemon.settle(1, " ready ")
            while len(adopted.seen) < max(ADOPTED_KILLS, count):
                daemon.end(signal.SIGKILL)
                daemon.start()
                # a child that is taken over proves itself as before
                daemon.settle(1, "^up")
                for name in names:
                    daemon.kill_one(name, adopted)
                    daemon.settle(1, " ready ")
        finally:
            daemon.end()
    return mine, adopted


def theirs(name: str, count: int, kills: int) -> tuple[Took, str]:
    """Another supervisor with the same children; the reason where it could not be measured."""
    took = Took()
    if not peers.there(name):
        return took, peers.MISSING
    names = [f"c{i}" for i in range(count)]
    with directory() as (where, births):
        if name == "supervisord":
            argv = peers.supervisord(where, names, births.path, free_port())
        else:
            argv = peers.circus(where, names, births.path, free_ports(2))
        found = Supervised(argv, where, peers.SEEN[name], births, both=True)
        found.start()
        try:
            found.born(names)
            # a child that dies within its first second counts as not started
            time.sleep(2.0)
            for i in range(kills):
                found.kill_one(names[i % count], took)
        except TimeoutError as e:
            return took, str(e)
        finally:
            found.end()
    return took, ""


def measure() -> list[Row]:
    rows: list[Row] = []
    where = Path(tempfile.mkdtemp(prefix="yrb-", dir="/tmp"))
    try:
        with start_etcd(where / "etcd") as etcd:
            for count, more in ((3, ""), (100, "-100")):
                mine, adopted = own(etcd.url, count)
                others = {name: theirs(name, count, kills) for name, kills in PEER_KILLS.items()}
                seen = tuple(peer(n, took.seen, 0.99, why) for n, (took, why) in others.items())
                again = tuple(peer(n, took.again, 0.5, why) for n, (took, why) in others.items())
                rows += [
                    Row(f"child-death-seen{more}", tuple(mine.seen), seen),
                    Row(f"adopted-death-seen{more}", tuple(adopted.seen), NOBODY),
                    Row(f"respawn{more}", tuple(mine.again), again),
                    Row(f"respawn-adopted{more}", tuple(adopted.again), NOBODY),
                ]
    finally:
        shutil.rmtree(where, ignore_errors=True)
    return rows
