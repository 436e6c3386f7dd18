"""A whole node: real etcd, real worker, stand-in ranks. What it costs idle, how soon it answers, what it sees."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from bench import peers
from bench.result import Peer, Row, peer
from tests.support.node import YrNode, cluster_text, yrnode

NAMES = (
    *("idle-rss", "idle-cpu", "livez"),
    *("worker-freeze-seen", "engine-freeze-seen", "engine-freeze-seen-spinning"),
)
NAMES_METRICS = ("metrics",)
NAMES_COLD = ("cold-start",)
SETTLE_S, IDLE_S = 15.0, 30.0
"""For ten seconds after it is ready a rank's processes are still being learnt."""
REQUESTS = 1000
FREEZES = 3
STARTS = 10
STALL_S = 15
PROBE = "the guides' probe"
GUIDES_PERIOD_S = 1.0
"""The guides name no period; with another one it is later still."""
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def measure() -> list[Row]:
    with yrnode(cluster_text(more=f"checks: {{rank.progress: {{stall_timeout: {STALL_S}s}}}}")) as node:
        node.wait_ready(120)
        time.sleep(SETTLE_S)
        rows = _idle(node)
        worker = [_drill(node, "freeze", "worker") for _ in range(FREEZES)]
        engine = [_drill(node, "hang", "rank/serve/0") for _ in range(FREEZES)]
        spinning = _drill(node, "spin", "rank/serve/1") - STALL_S
        never = Peer(PROBE, why="its completion may take 1200 s, longer than all of this")
        rows += [
            Row("engine-freeze-seen", tuple(engine), (never,)),
            Row("engine-freeze-seen-spinning", (spinning,), (never,), f"stall_timeout is {STALL_S} s here"),
            Row("worker-freeze-seen", tuple(worker), (_guides(node),)),
        ]
    return rows


def _idle(node: YrNode) -> list[Row]:
    """Its memory and CPU, beside others in the same time; then how soon each answers."""
    assert node.process is not None
    names = [n for n in ("supervisord", "circus") if peers.there(n)]
    with contextlib.ExitStack() as stack:
        others = {name: stack.enter_context(peers.idle(name)) for name in names}
        pids = {"yrnode": node.process.pid, **{name: pid for name, (pid, _) in others.items()}}
        before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
        time.sleep(IDLE_S)
        took = time.monotonic() - began
        cpu = {name: (cpu_s(pid) - before[name]) / took * 100 for name, pid in pids.items()}
        rss = {name: rss_mib(pid) for name, pid in pids.items()}
        host, _, port = node.api.partition(":")
        mine = [_get(host, int(port), "/livez") for _ in range(REQUESTS)]
        theirs = []
        if "supervisord" in others:
            theirs = [_rpc(others["supervisord"][1], "supervisor.getState") for _ in range(REQUESTS)]
    note = "with 3 children that sleep, and no checks"

    def beside(values: dict[str, float]) -> tuple[Peer, ...]:
        return tuple(
            Peer(n, values[n], 1, note) if n in values else Peer(n, why=peers.MISSING)
            for n in ("supervisord", "circus")
        )

    return [
        Row("idle-rss", (rss["yrnode"],), beside(rss)),
        Row("idle-cpu", (cpu["yrnode"],), beside(cpu), f"over {took:.0f} s"),
        Row("livez", tuple(mine), (peer("supervisord", theirs, 0.99, peers.MISSING),), "a connection each"),
    ]


def _get(host: str, port: int, path: str) -> float:
    """Milliseconds of one request on a connection of its own."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: HTTP {answer.status}")
    finally:
        connection.close()
    return (time.monotonic() - began) * 1000


def _rpc(port: int, method: str) -> float:
    began = time.monotonic()
    if not peers.rpc(port, method):
        raise RuntimeError(f"supervisord does not answer {method}")
    return (time.monotonic() - began) * 1000


def _drill(node: YrNode, *words: str) -> float:
    """Seconds until it was seen; the stack is ready again on return."""
    node.wait_ready(120)
    done = node.cli("drill", *words, "--yes", "--limit", "90", "-o", "json", timeout=120)
    result: dict[str, Any] = json.loads(done.stdout)
    if result["detected_ms"] is None:
        raise RuntimeError(f"drill {' '.join(words)}: {result['why']}")
    return float(result["detected_ms"]) / 1000


def _guides(node: YrNode) -> Peer:
    """The guides' look at the same worker, frozen once more; yrnode keeps its hands off meanwhile."""
    node.wait_ready(120)
    if node.cli("pause").returncode:
        return Peer(PROBE, why="yrnode did not pause")
    pid = node.component("worker")["pid"]
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        while not peers.guides_stale(node.home / "worker/liveness"):
            if time.monotonic() - began > 2 * peers.STALE_S:
                return Peer(PROBE, why=f"not seen within {2 * peers.STALE_S} s")
            time.sleep(GUIDES_PERIOD_S)
        return Peer(
            PROBE, time.monotonic() - began, 1, f"looks each {GUIDES_PERIOD_S:g} s; the guides name no period"
        )
    finally:
        os.kill(pid, signal.SIGCONT)


def metrics() -> list[Row]:
    with yrnode(cluster_text(ranks=16)) as node:
        node.wait_ready(150)
        host, _, port = node.api.partition(":")
        took = [_get(host, int(port), "/metrics") for _ in range(REQUESTS)]
    theirs: list[float] = []
    if peers.there("supervisord"):
        with peers.idle("supervisord", 18) as (_, at):
            theirs = [_rpc(at, "supervisor.getAllProcessInfo") for _ in range(REQUESTS // 5)]
    return [Row("metrics", tuple(took), (peer("supervisord", theirs, 0.99, peers.MISSING),), "a connection each")]


def cold() -> list[Row]:
    mine = [_cold() for _ in range(STARTS)]
    theirs = [_cold_supervisord() for _ in range(STARTS)] if peers.there("supervisord") else []
    return [Row("cold-start", tuple(mine), (peer("supervisord", theirs, 1.0, peers.MISSING),))]


def _cold() -> float:
    with yrnode(cluster_text(), start=False) as node:
        began = time.monotonic()
        node.start()
        node.wait("livez", lambda: node.get("/livez")[0] == 200, 30)
        return time.monotonic() - began


def _cold_supervisord() -> float:
    began = time.monotonic()
    with peers.idle("supervisord", 0) as (_, port):
        while not peers.rpc(port, "supervisor.getState"):
            if time.monotonic() - began > 30:
                raise TimeoutError("supervisord does not answer")
            time.sleep(0.005)
        return time.monotonic() - began
