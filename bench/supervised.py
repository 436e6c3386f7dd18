"""A supervisor with children that do nothing: when it sees that one is dead, and when there is another."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.sleepers import Births, Words, wait_all

ROOT = Path(__file__).resolve().parents[1]
LATE_S = 20.0
SAID_S = 2.0
"""After the next one is there."""


@dataclass
class Took:
    """Milliseconds from the kill of each child: until it was seen, until the next one's first word. `unsaid`: of so
    many deaths nothing was said. `why` there are no more of them."""

    seen: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    unsaid: int = 0
    why: str = ""

    @property
    def held(self) -> tuple[float, ...]:
        """What we are held to: a death of which nothing was said was not seen, and is a sample of the limit."""
        return (*self.seen, *[LATE_S * 1000] * self.unsaid)

    @property
    def note(self) -> str:
        unsaid = f"of {self.unsaid} deaths nothing was said" if self.unsaid else ""
        return "; ".join(filter(None, (unsaid, self.why)))


class Supervised:
    """A supervisor with its children. `seen`: what it says of a death, with the child's name in the first group; with
    `both` on either of its outputs; None: what it says goes to a file, and nobody listens."""

    def __init__(
        self, argv: Sequence[str], where: Path, seen: str | None, births: Births, both: bool = False
    ) -> None:
        self._argv, self._where, self.births = argv, where, births
        self._seen = None if seen is None else re.compile(seen)
        self._both = both
        self._err = where / "err.log"

    def start(self) -> None:
        env = {**os.environ, "BIRTHS": str(self.births.path)}
        with open(self._err, "ab") as err:
            self.process = subprocess.Popen(
                self._argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._seen else err,
                stderr=subprocess.STDOUT if self._both else err, start_new_session=True,
            )  # fmt: skip
        self.words = Words(self.process.stdout.fileno()) if self.process.stdout is not None else None

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """All that it says is read meanwhile: it would stand before a full pipe."""
        return wait_all((self.births, self.words) if self.words else (self.births,), condition, seconds)

    def rest(self, seconds: float) -> None:
        """Nothing but reading what it says."""
        self._wait(lambda: False, seconds)

    def settle(self, ready: int, pattern: str, seconds: float = 60.0) -> None:
        """Until so many lines of this pattern have come."""
        found, words = re.compile(pattern), self.words
        assert words is not None

        if not self._wait(lambda: sum(bool(found.search(x)) for _, x in words.lines) >= ready, seconds):
            raise TimeoutError(f"{self._argv[0]}: not {ready} times {pattern!r}: {self._err.read_text()[-500:]}")

    def born(self, names: Sequence[str], seconds: float = 60.0) -> None:
        """Until each of these children has said its first word."""
        if not self._wait(lambda: self.births.pids.keys() >= set(names), seconds):
            raise TimeoutError(f"{self._argv[0]}: not all children came: {self._err.read_text()[-500:]}")

    def kill_one(self, name: str, took: Took) -> None:
        """TimeoutError where there is no other one in time, which is then a sample of so long."""
        words, pattern = self.words, self._seen
        assert words is not None
        assert pattern is not None
        self.births.read()
        before = self.births.pids[name]
        words.lines.clear()
        began = time.monotonic()
        os.kill(before, signal.SIGKILL)

        def seen() -> float | None:
            return next((at for at, x in words.lines if (m := pattern.search(x)) and m[1] == name), None)

        late = not self._wait(lambda: self.births.pids[name] != before, LATE_S)
        took.again.append(LATE_S * 1000 if late else (self.births.at[name] - began) * 1000)
        # some bring another one back and do not say that they have seen the death
        self._wait(lambda: seen() is not None, SAID_S)
        if (at := seen()) is not None:
            took.seen.append((at - began) * 1000)
        else:
            took.unsaid += 1
        if late:
            raise TimeoutError(f"{name} was not there again within {LATE_S:g} s, which is its sample")

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            self.rest(0.02)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def directory() -> Iterator[tuple[Path, Births]]:
    """One of its own, with the children's pipe; no child outlives it."""
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
