"""Whatever bytes come: no answer of 5xx but a deliberate 503, nothing changed over TCP, a loop that goes on."""

import contextlib
import itertools
import socket
import threading
import time

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.served import ask, code, get, served
from yrnode.api.refusals import FIRST, WINDOW_S

PATHS = ("/", "/livez", "/readyz", "/status", "/cache", "/metrics", "/events", "/stream", "/logs")
CONTROL = ("/control/stop", "/control/drain", "/control/drill-kill", "/control/fence", "/control/x", "/control/")
ODD = ("*", "", "//", "/../status", "/%00", "/%ff", "http://x/status", "http://[/", "x:443", "/a?b#c", "/status;x=1")
NAMES = ("Accept", "Last-Event-ID", "Connection", "Upgrade", "Expect", "Content-Encoding", "Cookie", "Yrnode-Node")
VALUES = (
    *("text/event-stream", "close", "keep-alive", "websocket", "h2c", "100-continue", "gzip", "deflate", "br", "-1"),
    *("chunked", "0", "5", "70000", "99999999999999999999", "identity", "bytes=0-", "7", "x/y", ""),
)
QUERIES = (
    "",
    "?since=0",
    "?since=-1",
    "?since=1e9",
    "?wait=0",
    "?window=60",
    "?window=nan",
    "?name=etcd",
    "?%ff=%00",
)

methods = st.sampled_from(
    ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "G@T")
)
paths = st.one_of(
    st.builds(str.__add__, st.sampled_from(PATHS), st.sampled_from(QUERIES)),
    st.sampled_from(CONTROL + ODD),
    st.text(max_size=20).map("/".__add__),
)
printable = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=30)
headers = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.one_of(st.sampled_from(VALUES), printable)),
        st.tuples(st.sampled_from(("Content-Length", "Transfer-Encoding")), st.sampled_from(VALUES)),
        st.tuples(printable, printable),
    ),
    max_size=4,
)
bodies = st.one_of(
    st.just(b""),
    st.sampled_from(
        (b'{"target": "worker"}', b'{"target": "n0", "timeout_s": 1e999}', b"[" * 5000, b"5\r\nhello\r\n0\r\n\r\n")
    ),
    st.binary(max_size=200),
)


@st.composite
def requests(draw):
    lines = [f"{draw(methods)} {draw(paths)} HTTP/{draw(st.sampled_from(('1.1', '1.1', '1.0', '2.0', '')))}"]
    lines += ["Host: x"] if draw(st.booleans()) else []
    lines += [f"{name}: {value}" for name, value in draw(headers)]
    body = draw(bodies)
    if draw(st.booleans()):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + body


garbage = st.one_of(st.binary(max_size=300), st.lists(requests(), min_size=2, max_size=4).map(b"".join))
fuzz = settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
long_fuzz = settings(
    max_examples=4000, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with served(tmp_path_factory.mktemp("fuzz")) as found:
        yield found


def must_hold(api, found):
    assert code(found) < 500 or code(found) == 503
    assert get(api.port, "/livez", seconds=20) == 200
    assert not [r for r in api.records if "failed" in r or "fault" in r]


@fuzz
@given(requests())
def test_any_request_over_tcp(api, data):
    changes = len(api.node.asked)
    must_hold(api, ask(api.port, data, seconds=0.1))
    assert len(api.node.asked) == changes


@fuzz
@given(requests())
def test_any_request_on_the_socket(api, data):
    must_hold(api, ask(api.path, data, seconds=0.1))
    assert get(api.path, "/status") == 200


@fuzz
@given(garbage, st.lists(st.integers(0, 300), max_size=3), st.booleans())
def test_any_bytes_in_any_parts(api, data, cuts, half):
    edges = [0, *sorted(cuts), len(data)]
    parts = [data[a:b] for a, b in itertools.pairwise(edges)]
    for to in (api.port, api.path):
        must_hold(api, ask(to, *parts, seconds=0.05, half=half))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_long_fuzz_leaves_no_trace(tmp_path):
    """Thousands of odd requests beside slow and half-closed clients: nothing grows, the loop is never far behind."""
    with served(tmp_path) as api:
        process, began = psutil.Process(), time.monotonic()
        for path in PATHS[:-3]:
            get(api.port, path)
        end = threading.Event()
        slow = [threading.Thread(target=_drip, args=(api, end)) for _ in range(4)]
        for t in slow:
            t.start()

        @long_fuzz
        @given(st.one_of(requests(), garbage), st.booleans(), st.booleans())
        def any_bytes(data, half, unix):
            must_hold(api, ask(api.path if unix else api.port, data, seconds=0.05, half=half))

        try:
            any_bytes()
            tasks, fds, rss = api.tasks(), process.num_fds(), process.memory_info().rss
            api.held = 0.0
            any_bytes()
            grown = (process.memory_info().rss - rss) / 2**20
            more = process.num_fds() - fds
        finally:
            end.set()
            for t in slow:
                t.join(10)
        print(
            f"loop held {api.held * 1e3:.0f} ms, {grown:.1f} MiB and {more} files more, {api.tasks() - tasks} tasks"
        )
        assert api.held < 0.25
        assert grown < 40
        until(lambda: api.tasks() <= 6)
        assert process.num_fds() <= fds
        assert len(api.node.events.since(0)) <= 2 * (FIRST + 1) * (2 + (time.monotonic() - began) / WINDOW_S)


def _drip(api, end):
    """A client that sends a byte now and then, and one that says half and goes."""
    while not end.is_set():
        with contextlib.suppress(OSError):
            for i, part in enumerate((b"GET /status HT", b"TP/1.1\r\n", b"Host: x\r\nX: ")):
                ask(api.port, part, seconds=0.2, half=i == 2)
            with socket.create_connection(("127.0.0.1", api.port)) as s:
                for byte in b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc":
                    s.sendall(bytes([byte]))
                    time.sleep(0.002)


def until(condition, seconds=20.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)
