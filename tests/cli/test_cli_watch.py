"""The table of `status --watch`: in any width, without colour, over a restart of the daemon, on a real terminal."""

import asyncio
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from rich.console import Console

from tests.api.fake import PROVEN, FakeNode, snapshot, spec, view
from tests.support.etcd import free_port
from yrnode.api.app import now_status
from yrnode.api.server import Api
from yrnode.cli.picture import picture, worst
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord, Stage
from yrnode.model.starts import Starts
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally, fail

KILLED = Cause(Reason.EXITED, "killed by signal 9", "\x1b[31mwait status 9")
SGR = re.compile(r"\x1b\[([\d;]*)m")
OTHER = re.compile(r"\x1b[\[(][?\d;]*[a-ln-zA-Z]")


def drawn(status, width=80, silence="", **more):
    """As lines, with what a terminal would be sent."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, highlight=False, _environ={"TERM": "xterm", **more})
    console.print(picture(status, silence, width))
    return out.getvalue().splitlines()


def bare(lines):
    return [SGR.sub("", line).rstrip() for line in lines]


def starting(tmp_path, **more):
    """A node whose rank loads its weights, four times as long as usual."""
    node = FakeNode(tmp_path)
    rank = view(
        "rank/serve/0",
        Plane.ENGINE,
        State.STARTING,
        cause=PROVEN,
        since=600.0,
        generation=3,
        checks={"health": Tally()},
    )
    starts = Starts(
        {"rank/serve/0": 100.0}, {}, {"rank/serve/0": "loading safetensors checkpoint shards: 33 % (1 of 3)"}
    )
    node.state = snapshot(rank, starts=starts, record=GroupRecord(3, Stage.GO, KILLED), **more)
    return now_status(node)


def test_80_columns_hold_what_matters(tmp_path):
    lines = bare(drawn(starting(tmp_path)))
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "n0 of lab NOT READY" in text
    assert "rank/serve/0 starting" in text
    assert "start 6m40s, LATE: usually 1m40s: loading safetensors checkpoint shards: 33 %" in text
    assert "etcd ready" in text
    assert "serve 3 go starting rank/serve/0 (starting)" in text
    assert "PID" not in text
    wide = " ".join(bare(drawn(starting(tmp_path), 160)))
    assert "PID" in wide
    assert "CAUSE" in wide


@pytest.mark.parametrize("width", [20, 40, 79, 80, 110, 250])
def test_no_line_is_wider_than_the_terminal(tmp_path, width):
    status = starting(tmp_path)
    status["components"]["worker"]["reason"] = "权重加载中" * 40
    lines = drawn(status, width)
    from rich.cells import cell_len

    assert max(cell_len(SGR.sub("", line)) for line in lines) <= width


def test_a_state_is_a_word_also_without_colour(tmp_path):
    status = starting(tmp_path)
    coloured, plain = drawn(status), drawn(status, NO_COLOR="1")
    assert bare(coloured) == bare(plain)
    colours = [code for line in plain for codes in SGR.findall(line) for code in codes.split(";")]
    assert not [c for c in colours if c and 30 <= int(c) <= 49], "bold is no colour"
    assert any("32" in code for line in coloured for code in SGR.findall(line))


def test_what_others_say_moves_no_cursor(tmp_path):
    status = starting(tmp_path)
    status["components"]["worker"] |= {"state": "backoff", "reason": "died: \x1b[2J\x1b[31mboo\r\n[bold]x[/bold]"}
    lines = drawn(status, 160)
    assert not OTHER.search("".join(lines))
    assert "[bold]x[/bold]" in "".join(bare(lines)), "nor is it taken for markup"


def test_the_worst_check_is_named():
    checks = {
        "a": {"verdict": "ok", "evidence": "", "failures": 0, "failing": False, "age_s": 1.0},
        "b": {"verdict": "fail", "evidence": "HTTP 503", "failures": 9, "failing": False, "age_s": 1.0},
        "c": {"verdict": "fail", "evidence": "no progress", "failures": 3, "failing": True, "age_s": 1.0},
        "d": {"verdict": "unknown", "evidence": "", "failures": 0, "failing": False, "age_s": None},
    }
    assert worst({"checks": checks}) == "check c fails: no progress (and 1 more)"
    assert worst({"checks": {"a": checks["a"]}}) == ""


def test_peers_and_a_failing_check_beside_a_ready_component(tmp_path):
    node = FakeNode(tmp_path)
    bad = Tally(fail("one that only observes"), at=999.0, failures=3, failing=True, passed=True)
    own = spec("worker", Plane.CACHE)
    node.state = snapshot(view("worker", Plane.CACHE, checks={own.checks[0].name: bad}))
    status = now_status(node)
    status["peers"] = {
        "n1": {**PEER, "up": True, "version": "9.9.8", "differs": ["yrnode 9.9.8"]},
        "n2": {**PEER, "up": False, "absent_since": status["started_at"]},
        "n3": {**PEER, "up": None},
        "n4": {**PEER, "up": False, "fenced": True},
    }
    text = " ".join(" ".join(bare(drawn(status, 160))).split())
    assert "check health fails: one that only observes" in text
    assert "n1 up - 9.9.8 yrnode 9.9.8" in text
    assert "n2 absent 1h1m" in text
    assert "n3 unknown" in text
    assert "n4 fenced" in text


PEER = {"up": True, "absent_since": None, "fenced": False, "version": None, "differs": []}


def test_before_the_first_answer_and_after_the_last(tmp_path):
    assert bare(drawn(None)) == ["asking yrnode …"]
    assert bare(drawn(None, silence="no answer for 5s: gone")) == ["no answer for 5s: gone", ""]
    lines = bare(drawn(starting(tmp_path), silence="no answer for 5s: gone"))
    assert lines[0] == "no answer for 5s: gone; below is what it said last"
    assert any("n0 of lab" in line for line in lines)


class Terminal:
    """`yrnode` on a terminal of its own."""

    def __init__(self, *words, rows=24, columns=80, **env):
        self.ours, theirs = pty.openpty()
        self.resize(rows, columns)
        os.set_blocking(self.ours, False)
        self.seen = ""
        self.child = subprocess.Popen(
            [sys.executable, "-m", "yrnode.cli.main", *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
            # what the caller says of a size goes before the terminal's own
            env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
            | {"TERM": "xterm-256color", **env},
        )
        os.close(theirs)

    def resize(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def until(self, words, seconds=15):
        """What was sent up to these words (a pattern), from the last call on."""
        end = time.monotonic() + seconds
        while not (match := re.search(words, self.text())):
            assert time.monotonic() < end, (words, self.text()[-2000:])
            assert self.child.poll() is None, (words, self.text()[-2000:], self.child.stderr.read())
            await asyncio.sleep(0.02)
        found, self.seen = self.text()[: match.end()], self.text()[match.end() :]
        return found

    def text(self):
        try:
            while data := os.read(self.ours, 65536):
                self.seen += data.decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            pass
        # a cursor that goes home begins another picture
        return re.sub(r" *\r?\n", "\n", OTHER.sub("", SGR.sub("", self.seen)))

    async def end(self, number):
        self.child.send_signal(number)
        code = await asyncio.to_thread(self.child.wait, 10)
        raw = self.seen
        try:
            while data := os.read(self.ours, 65536):
                raw += data.decode("utf-8", "replace")
        except (BlockingIOError, OSError):
            pass
        return code, raw, self.child.stderr.read()

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait(10)
        self.child.stderr.close()
        os.close(self.ours)


@pytest.fixture
def node(tmp_path):
    (tmp_path / "state").mkdir()
    return FakeNode(tmp_path / "state")


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def file(tmp_path, port):
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "cluster: lab\nnodes: {n0: {address: 127.0.0.1}}\ngroups: {serve: {ranks: {n0: 1}, port: 7000, model: m}}\n"
        f'api: {{listen: "127.0.0.1:{port}"}}\nstate_dir: ./state\nrun_dir: ./run\nlog_dir: ./log\n'
    )
    return path


@pytest.fixture
async def serve(node, port, tmp_path):
    """Starts the daemon's interface, again too."""
    apis = []

    async def start():
        api = Api(node, "127.0.0.1", port, tmp_path / "run" / "yrnode.sock")
        await api.start()
        apis.append(api)
        return api

    yield start
    for api in apis:
        await api.close()


@pytest.fixture
def terminal(file):
    opened = []

    def make(**more):
        opened.append(Terminal("status", "--watch", "--config", file, **more))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


async def test_it_follows_over_a_restart_of_the_daemon_and_ends_with_0(node, serve, terminal):
    api = await serve()
    t = terminal()
    assert "n0 of lab" in await t.until(r"router +ready")
    node.state = snapshot(view("worker", Plane.CACHE, State.BACKOFF, cause=KILLED))
    await t.until(r"worker +backoff")
    await api.close()
    await t.until("no answer for ")
    await t.until("below is what it said last")
    node.state = snapshot()
    await serve()
    await t.until("n0 of lab  ready")
    code, raw, err = await t.end(signal.SIGINT)
    assert (code, err) == (0, b"")
    assert "\x1b[?1049l" in raw, "the terminal is as before"
    assert "\x1b[?25h" in raw


async def test_it_waits_for_a_daemon_that_is_not_there_yet(serve, terminal):
    t = terminal()
    await t.until("no answer for ")
    await serve()
    await t.until("n0 of lab  ready")
    assert (await t.end(signal.SIGTERM))[0] == 128 + signal.SIGTERM


async def test_a_new_size_is_drawn_and_what_does_not_fit_is_counted(node, serve, terminal):
    await serve()
    t = terminal(rows=6)
    await t.until("more lines: make the terminal taller")
    t.resize(50, 160)
    t.child.send_signal(signal.SIGWINCH)
    await t.until("RESTARTS")
    await t.until("GROUP")
    t.resize(50, 80)
    t.child.send_signal(signal.SIGWINCH)
    await t.until(r"FOR +REASON")


async def test_without_colour_and_with_a_plain_encoding(serve, terminal):
    await serve()
    t = terminal(rows=6, NO_COLOR="1", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    await t.until("more lines")
    code, raw, err = await t.end(signal.SIGINT)
    assert (code, err) == (0, b"")
    codes = [int(c) for found in SGR.findall(raw) for c in found.split(";") if c]
    assert not [c for c in codes if 30 <= c <= 49]


def test_other_verbs_do_not_load_it():
    code = "import sys, yrnode.cli.main, yrnode.cli.status, yrnode.cli.run, yrnode.node.supervisor\n"
    code += "print('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"
