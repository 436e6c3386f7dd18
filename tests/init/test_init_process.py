"""The init with a small daemon below it, not as PID 1: as in a shell, or below a container's own init."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from yrnode.process import table

INIT = """
import sys
from yrnode.init import fate, parent
from yrnode.telemetry.log import set_up
parent.ABORT_S = 1.0
fate.FIRST_PAUSE_S = float(sys.argv[2])
set_up()
sys.exit(parent.Init([sys.executable, *sys.argv[3:]], float(sys.argv[1])).run())
"""
DAEMON = """
import faulthandler, os, signal, subprocess, sys, time
from yrnode.init.contract import SIGNALS, let_through
from yrnode.telemetry.notify import notify
def say(word):
    with open(sys.argv[1], "a") as f:
        f.write(f"{word} {os.getpid()}\\n")
def feed(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        notify(READY="1", WATCHDOG="1")
        time.sleep(0.05)
def leave(number, frame):
    say("told")
    os._exit(0)
say("began")
"""


class Lab:
    def __init__(self, where: Path) -> None:
        self.said_file, self.script, self.output = where / "said", where / "daemon.py", where / "output"
        self.said_file.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, text: str, watchdog_s: float = 60.0, first_pause_s: float = 0.2) -> None:
        self.script.write_text(DAEMON + text)
        figures = (str(watchdog_s), str(first_pause_s))
        argv = [sys.executable, "-c", INIT, *figures, str(self.script), str(self.said_file)]
        with open(self.output, "wb") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=out, start_new_session=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def said(self, word: str) -> list[int]:
        return [int(line.split()[1]) for line in self.said_file.read_text().splitlines() if line.startswith(word)]

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = 15) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.01)
        raise AssertionError(f"no {what} within {seconds} s: {self.output.read_text()}")

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(20)

    def close(self) -> None:
        # stopped, it starts nothing more
        self.send(signal.SIGSTOP)
        # what a daemon has started comes to it when that is dead
        while left := [p for p in table.scan() if p.ppid == self.pid and p.state not in "ZX"]:
            for proc in left:
                os.kill(proc.pid, signal.SIGKILL)
        self.send(signal.SIGKILL)
        self.end()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    yield found
    if found.process is not None and found.process.poll() is None:
        found.close()


def test_a_refusal_is_passed_on_and_not_repeated(lab: Lab) -> None:
    lab.start("sys.exit(2)")
    assert lab.end() == 2
    assert len(lab.said("began")) == 1


def test_a_program_that_cannot_be_started_is_127(tmp_path: Path) -> None:
    code = "import sys\nfrom yrnode.init.parent import Init\nsys.exit(Init(['/no/such']).run())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (127, "yrnode: cannot start /no/such: No such file or directory\n")


def test_one_that_dies_is_started_again_and_one_that_had_served_may_refuse(lab: Lab) -> None:
    lab.start(
        """
count = len(open(sys.argv[1]).readlines())
if count == 1:
    os.kill(os.getpid(), signal.SIGKILL)
feed(0.2)
if count < 4:
    sys.exit(2)
sys.exit(0)
"""
    )
    assert lab.end() == 0
    assert len(lab.said("began")) == 4
    text = lab.output.read_text()
    assert "was ended by SIGKILL: another one in 0.2 s" in text
    assert "ended with exit code 2: another one in 0.8 s" in text


def test_a_word_that_comes_before_it_can_be_heard_is_kept(lab: Lab) -> None:
    lab.start(
        """
time.sleep(0.5)
signal.signal(signal.SIGTERM, leave)
let_through(*SIGNALS)
feed(20)
"""
    )
    lab.wait("daemon", lambda: lab.said("began"))
    lab.send(signal.SIGINT)
    assert lab.end() == 0
    assert lab.said("told") == lab.said("began")


def test_a_second_word_changes_nothing(lab: Lab) -> None:
    """The daemon dies of a second SIGTERM here, as it would while it is leaving."""
    lab.start(
        """
def leave(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    say("told")
    feed(0.6)
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
let_through(*SIGNALS)
feed(20)
"""
    )
    lab.wait("daemon", lambda: lab.said("began"))
    lab.send(signal.SIGTERM)
    lab.wait("first word", lambda: lab.said("told"))
    lab.send(signal.SIGTERM)
    lab.send(signal.SIGINT)
    assert lab.end() == 0
    assert len(lab.said("began")) == 1


def test_a_stop_goes_on_when_the_daemon_dies_in_it_and_ends_when_none_can_do_it(lab: Lab) -> None:
    lab.start(
        """
feed(0.2)
signal.signal(signal.SIGTERM, lambda number, frame: os.kill(os.getpid(), signal.SIGKILL))
say("serving")
let_through(*SIGNALS)
feed(20)
"""
    )
    lab.wait("daemon", lambda: lab.said("serving"))
    lab.send(signal.SIGTERM)
    assert lab.end() == 1
    assert len(lab.said("began")) == 6
    assert "the ordered stop has failed" in lab.output.read_text()


def test_a_stop_between_two_daemons_comes_to_the_next_one(lab: Lab) -> None:
    lab.start(
        """
signal.signal(signal.SIGTERM, leave)
let_through(*SIGNALS)
feed(0.2)
os.kill(os.getpid(), signal.SIGKILL)
""",
        first_pause_s=30,
    )
    lab.wait("a long pause", lambda: "another one in 30.0 s" in lab.output.read_text())
    lab.send(signal.SIGTERM)
    assert lab.end() == 0
    assert len(lab.said("began")) == 2
    assert lab.said("told") == lab.said("began")[-1:]


def test_one_that_is_not_fed_is_ended(lab: Lab) -> None:
    """It says where it hung; the next one is fed, but for one that does not even die of SIGABRT."""
    lab.start(
        """
faulthandler.enable()
count = len(open(sys.argv[1]).readlines())
def hangs():
    time.sleep(30)
feed(0.2)
if count == 1:
    hangs()
if count == 2:
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    hangs()
feed(2.5)
sys.exit(0)
""",
        watchdog_s=2.0,
    )
    assert lab.end() == 0
    text = lab.output.read_text()
    assert len(lab.said("began")) == 3
    assert "in hangs" in text
    assert "was ended by SIGABRT" in text
    assert "was ended by SIGKILL" in text


def test_a_stopped_daemon_does_not_wait_for_sigkill(lab: Lab) -> None:
    lab.start("feed(0.2); say('serves'); feed(60)", watchdog_s=1.0)
    (first,) = lab.wait("daemon", lambda: lab.said("serves"))
    os.kill(first, signal.SIGSTOP)
    lab.wait("another", lambda: len(lab.said("began")) == 2)
    assert "SIGABRT" in lab.output.read_text()
    assert "SIGKILL" not in lab.output.read_text()


def test_a_pause_of_both_is_no_hang(lab: Lab) -> None:
    """As a container is paused, or its machine: the daemon has had no time either."""
    lab.start("feed(0.2); say('serves'); feed(60)", watchdog_s=3.0)
    (daemon,) = lab.wait("daemon", lambda: lab.said("serves"))
    os.kill(daemon, signal.SIGSTOP)
    # until the init has taken what was sent before
    time.sleep(1)
    lab.send(signal.SIGSTOP)
    time.sleep(3.5)
    lab.send(signal.SIGCONT)
    time.sleep(0.4)
    os.kill(daemon, signal.SIGCONT)
    time.sleep(1.5)
    assert lab.said("began") == [daemon]
    assert lab.output.read_text() == ""


def test_a_strangers_food_is_not_the_daemons(lab: Lab) -> None:
    """With the host's network anybody can send to the socket."""
    lab.start(
        """
code = "import time\\nfrom yrnode.telemetry.notify import notify\\n"
code += "for _ in range(300): notify(WATCHDOG='1'); time.sleep(0.1)"
feed(0.2)
stranger = subprocess.Popen([sys.executable, "-c", code])
say("stranger")
time.sleep(30)
""",
        watchdog_s=1.0,
    )
    lab.wait("the stranger", lambda: lab.said("stranger"))
    lab.wait("its end", lambda: "was ended by SIGABRT" in lab.output.read_text())


def test_usr1_brings_another_daemon_at_once(lab: Lab) -> None:
    lab.start(
        """
from yrnode.init.contract import DETACHED
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(DETACHED))
signal.signal(signal.SIGHUP, lambda number, frame: say("hup"))
let_through(*SIGNALS)
say("heeds")
feed(60)
""",
        first_pause_s=30,
    )
    lab.wait("daemon", lambda: lab.said("heeds"))
    for count in range(2, 6):
        lab.send(signal.SIGUSR1)
        lab.wait("another", lambda count=count: len(lab.said("heeds")) == count)
    lab.send(signal.SIGHUP)
    lab.wait("hangup", lambda: lab.said("hup"))
    lab.send(signal.SIGTERM)
    assert lab.end() == 0


def test_orphans_are_reaped(lab: Lab) -> None:
    lab.start(
        """
for _ in range(600):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os._exit(3)
        os._exit(0)
    os.waitpid(pid, 0)
say("all")
feed(60)
"""
    )
    lab.wait("all", lambda: lab.said("all"), 60)
    lab.wait("no zombie", lambda: not [p for p in table.scan() if p.ppid == lab.pid and p.state == "Z"])
    assert lab.process is not None
    assert lab.process.poll() is None
    assert len(lab.said("began")) == 1
