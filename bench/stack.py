"""A whole node: real etcd, real worker, stand-in ranks. What it costs idle, how soon it answers, what it sees."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from bench import groups, guides, peers
from bench.proc import cpu_s, rss_mib
from bench.result import Peer, Row, peer
from tests.support.node import YrNode, cluster_text, yrnode

IDLE = ("idle-rss", "idle-cpu", "livez")
FREEZES = {
    "engine-freeze-seen": ("hang", "rank/serve/0", 3),
    "engine-freeze-seen-spinning": ("spin", "rank/serve/1", 1),
    "worker-freeze-seen": ("freeze", "worker", 3),
}
"""The drill, its target, how often."""
NAMES = (*IDLE, *FREEZES, *groups.NAMES_LOSS)
NAMES_METRICS = ("metrics",)
NAMES_COLD = ("cold-start",)
SETTLE_S, IDLE_S = 12.0, 30.0
"""For ten seconds after it is ready a rank's processes are still being learnt."""
SCRAPE_S = 15.0
REQUESTS = 1000
STARTS = 10
STALL_S = 8
LIMIT_S = 90.0
"""A fault that is not seen by then is a sample of so much."""
SLEEPERS = "with 3 children that sleep, and no checks"


def measure(wanted: Set[str]) -> Iterator[Row]:
    """The rows of one node, and, while the guides wait for its frozen worker, that of nodes that mostly wait too."""
    if wanted.isdisjoint({*IDLE, *FREEZES}):
        yield from groups.loss(wanted)
        return
    with yrnode(cluster_text(more=f"checks: {{rank.progress: {{stall_timeout: {STALL_S}s}}}}")) as node:
        node.wait_ready(120)
        idle: Row | None = None
        if not wanted.isdisjoint(IDLE):
            time.sleep(SETTLE_S)
            idle, *rows = _idle(node)
            yield from (idle, *rows)
        for name, (drill, target, times) in FREEZES.items():
            if name in wanted and name != "worker-freeze-seen":
                yield _drills(node, name, drill, target, times)
        if "worker-freeze-seen" in wanted:
            seen = _drills(node, "worker-freeze-seen", *FREEZES["worker-freeze-seen"])
            yield seen
        if idle is not None and not wanted.isdisjoint(FREEZES):
            yield _again(node, idle)
        if "worker-freeze-seen" in wanted:
            with guides.watching(node) as watch:
                if not wanted.isdisjoint(groups.NAMES_LOSS):
                    yield from groups.loss(wanted)
            yield replace(seen, peers=(watch.peer,))
            return
    if not wanted.isdisjoint(groups.NAMES_LOSS):
        yield from groups.loss(wanted)


def _idle(node: YrNode) -> list[Row]:
    """Its memory and CPU, beside others in the same time; then how soon each answers."""
    assert node.process is not None
    host, _, port = node.api.partition(":")
    others: dict[str, tuple[int, int]] = {}
    why = {name: "" if peers.there(name) else peers.MISSING for name in peers.PACKAGES}
    with contextlib.ExitStack() as stack:
        for name in filter(peers.there, peers.PACKAGES):
            try:
                others[name] = stack.enter_context(peers.idle(name))
            except TimeoutError as e:
                why[name] = str(e)
        pids = {"yrnode": node.process.pid, **{name: pid for name, (pid, _) in others.items()}}
        before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
        while time.monotonic() - began < IDLE_S:
            time.sleep(SCRAPE_S)
            _get(host, int(port), "/metrics")
        took = time.monotonic() - began
        cpu = {name: (cpu_s(pid) - before[name]) / took * 100 for name, pid in pids.items()}
        rss = {name: rss_mib(pid) for name, pid in pids.items()}
        mine = [_get(host, int(port), "/livez") for _ in range(REQUESTS)]
        theirs = []
        if "supervisord" in others:
            theirs = [_rpc(others["supervisord"][1], "supervisor.getState") for _ in range(REQUESTS)]
    scraped = f"/metrics read each {SCRAPE_S:g} s"
    return [
        Row("idle-rss", (rss["yrnode"],), _beside(rss, why), f"after {took:.0f} s, {scraped}"),
        Row("idle-cpu", (cpu["yrnode"],), _beside(cpu, why), f"over {took:.0f} s, {scraped}"),
        Row("livez", tuple(mine), (peer("supervisord", theirs, 0.99, why["supervisord"]),), "a connection each"),
    ]


def _beside(values: Mapping[str, float], why: Mapping[str, str]) -> tuple[Peer, ...]:
    return tuple(Peer(n, values[n], 1, SLEEPERS) if n in values else Peer(n, why=w) for n, w in why.items())


def _again(node: YrNode, idle: Row) -> Row:
    """What it holds after the drills counts too."""
    assert node.process is not None
    samples = (*idle.samples, rss_mib(node.process.pid))
    return replace(idle, samples=samples, note=f"{idle.note}, and again after the drills")


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


def _drills(node: YrNode, name: str, drill: str, target: str, times: int) -> Row:
    """Seconds until each was seen. One that cannot be made is told of, and what came before it stays."""
    took: list[float] = []
    note = ""
    for _ in range(times):
        try:
            took.append(_drill(node, drill, target))
            if took[-1] == LIMIT_S:
                note = f"not seen within {LIMIT_S:g} s, which is its sample"
        except (AssertionError, RuntimeError, ValueError, OSError, subprocess.TimeoutExpired) as e:
            note = f"a drill failed: {str(e)[:300]!r}"
            break
    if drill == "spin":
        took = [x - STALL_S for x in took]
        note = "; ".join(filter(None, (f"stall_timeout is {STALL_S} s here", note)))
    return Row(name, tuple(took), (guides.NEVER,), note)


def _drill(node: YrNode, *words: str) -> float:
    """Seconds until it was seen, `LIMIT_S` when it was not in time."""
    node.wait_ready(120)
    done = node.cli("drill", *words, "--yes", "--limit", f"{LIMIT_S:g}", "-o", "json", timeout=LIMIT_S + 30)
    if not done.stdout.strip():
        raise RuntimeError(f"drill {' '.join(words)}: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    return LIMIT_S if result["detected_ms"] is None else float(result["detected_ms"]) / 1000


def metrics(wanted: Set[str]) -> Iterator[Row]:
    with yrnode(cluster_text(ranks=16)) as node:
        node.wait_ready(150)
        time.sleep(SETTLE_S)
        host, _, port = node.api.partition(":")
        took = [_get(host, int(port), "/metrics") for _ in range(REQUESTS)]
    row = Row(
        "metrics", tuple(took), (peer("supervisord", (), 0.99),), f"a connection each, {SETTLE_S:g} s after ready"
    )
    yield row
    theirs: list[float] = []
    if peers.there("supervisord"):
        with peers.idle("supervisord", 18) as (_, at):
            theirs = [_rpc(at, "supervisor.getAllProcessInfo") for _ in range(REQUESTS // 5)]
    yield replace(row, peers=(peer("supervisord", theirs, 0.99, "" if theirs else peers.MISSING),))


def cold(wanted: Set[str]) -> Iterator[Row]:
    mine = [_cold() for _ in range(STARTS)]
    row = Row("cold-start", tuple(mine), (peer("supervisord", (), 1.0),))
    yield row
    theirs = [_cold_supervisord() for _ in range(STARTS)] if peers.there("supervisord") else []
    yield replace(row, peers=(peer("supervisord", theirs, 1.0, "" if theirs else peers.MISSING),))


def _cold() -> float:
    with yrnode(cluster_text(), start=False) as node:
        began = time.monotonic()
        node.start()
        node.wait("livez", lambda: node.get("/livez")[0] == 200, 30)
        took = time.monotonic() - began
        # what it has begun to start is found by its mark, which a child has once it is a program of its own
        node.kill()
        time.sleep(0.05)
    return took


def _cold_supervisord() -> float:
    began = time.monotonic()
    with peers.idle("supervisord", 0) as (_, port):
        while not peers.rpc(port, "supervisor.getState"):
            if time.monotonic() - began > 30:
                raise TimeoutError("supervisord does not answer")
            time.sleep(0.005)
        return time.monotonic() - began
