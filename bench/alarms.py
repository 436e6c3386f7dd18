"""Does a busy host make it cry wolf: an hour's checks in a minute and a half, while nothing is wrong."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator

from bench.result import Peer, Row
from tests.support.node import cluster_text, yrnode

NAMES = ("false-alarms",)
FASTER = 40
FOR_S = 3600 / FASTER
BUSY_A_CORE = 4
REQUESTS = 8
"""At a time, at each rank."""
PERIODS_S = {
    "etcd.process": 1.0,
    "etcd.read": 1.0,
    "worker.process": 1.0,
    "worker.liveness": 1.0,
    "worker.key": 2.0,
    "worker.ring": 5.0,
    "worker.kv": 5.0,
    "rank.process": 1.0,
    "rank.processes": 0.5,
    "rank.health": 5.0,
    "rank.engine": 1.0,
    "rank.progress": 2.0,
    "rank.canary": 30.0,
    "rank.cache": 30.0,
}
"""As they are without a word in the cluster file."""
ALARMS = ("unhealthy", "stop", "bump", "fail", "give-up")
PROBE_S, PROBE_TIMEOUT_S, PROBE_FAILURES = 5.0, 2.0, 3
"""A plain prober of /health, as an orchestrator's liveness probe is set up for an inference server."""
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def measure() -> list[Row]:
    checks = ", ".join(f"{name}: {{period: {period * 1000 / FASTER:.0f}ms}}" for name, period in PERIODS_S.items())
    with yrnode(cluster_text(more=f"checks: {{{checks}}}")) as node:
        node.wait_ready(120)
        ports = [int(node.config.read_text().partition("    port: ")[2].split()[0]) + i for i in (0, 1)]
        last = node.events()[-1]["seq"]
        plain = [0]
        with saturated(ports), probing(ports, plain):
            time.sleep(FOR_S)
        found = [e for e in node.events() if e["seq"] > last and e["what"] in ALARMS]
    words = ", ".join(f"{e['target']} {e['what']}" for e in found[:5])
    note = (
        f"{FOR_S:.0f} s with periods a {FASTER}th, time-outs as they are; {BUSY_A_CORE} busy processes a core, "
        f"{REQUESTS} requests at each rank" + (f": {words}" if words else "")
    )
    why = f"GET /health, {PROBE_TIMEOUT_S:g} s, {PROBE_FAILURES} misses in a row, as often"
    return [Row("false-alarms", (float(len(found)),), (Peer("plain probe", float(plain[0]), 1, why),), note)]


@contextlib.contextmanager
def saturated(ports: list[int]) -> Iterator[None]:
    busy: list[subprocess.Popen[bytes]] = []
    over = threading.Event()
    threads = [threading.Thread(target=_ask, args=(p, over)) for p in ports for _ in range(REQUESTS)]
    try:
        for _ in range(BUSY_A_CORE * len(os.sched_getaffinity(0))):
            # in sessions of their own: the kernel may share its cores among sessions (sched_autogroup)
            busy.append(subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], start_new_session=True))
        for thread in threads:
            thread.start()
        yield
    finally:
        over.set()
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
        for thread in threads:
            if thread.ident is not None:
                thread.join(30)


def _ask(port: int, over: threading.Event) -> None:
    body = json.dumps({"model": "demo", "prompt": "hello " * 50, "max_tokens": 200}).encode()
    while not over.is_set():
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
        )
        try:
            with _OPEN(request, timeout=20) as answer:
                answer.read()
        except OSError:
            over.wait(0.1)


@contextlib.contextmanager
def probing(ports: list[int], alarms: list[int]) -> Iterator[None]:
    """Adds up in `alarms[0]` how often a plain prober would have called a rank dead."""
    over = threading.Event()
    threads = [threading.Thread(target=_probe, args=(p, over, alarms)) for p in ports]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(10)


def _probe(port: int, over: threading.Event, alarms: list[int]) -> None:
    misses = 0
    while not over.wait(PROBE_S / FASTER):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            misses = 0 if connection.getresponse().status == 200 else misses + 1
        except (OSError, http.client.HTTPException):
            misses += 1
        finally:
            connection.close()
        if misses == PROBE_FAILURES:
            alarms[0] += 1
            misses = 0
