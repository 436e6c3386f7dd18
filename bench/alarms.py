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
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from bench.result import Peer, Row
from tests.support.node import YrNode, cluster_text, yrnode
from yrnode.components import node as components
from yrnode.config.load import load
from yrnode.model.spec import CheckSpec

NAMES = ("false-alarms",)
FASTER = 40
FOR_S = 3600 / FASTER
KEEP = ("rank.engine", "rank.progress")
"""These measure for how long something stands still in their own periods: faster ones would mean another time-out."""
BUSY_A_CORE = 4
REQUESTS = 8
"""At a time, at each rank."""
ALARMS = ("unhealthy", "stop", "bump", "fail", "give-up", "check-failed")
"""What it says or does when it takes something for broken; nothing fails when the measurement begins."""
PROBE_S, PROBE_TIMEOUT_S, PROBE_FAILURES = 5.0, 2.0, 3
"""A plain prober of /health, as an orchestrator's liveness probe is set up for an inference server."""
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

Counts = Mapping[str, Mapping[str, int]]
"""By component and check: `runs` and `unknowns` so far, and `failing`."""


def specs(file: Path) -> dict[str, tuple[str, CheckSpec]]:
    """By component and check: the kind of the component, and the check as it runs with this cluster file."""
    found = components.specs(components.host_of(load(file), "n0", os.environ))
    return {f"{c.name} {check.name}": (c.kind, check) for c in found for check in c.checks if check.watch}


def faster(own: Mapping[str, tuple[str, CheckSpec]]) -> str:
    """The line of a cluster file that makes all of these checks run `FASTER` times as often."""
    # a canary's own period is that of an idle rank: it looks much more often whether one is due
    periods = {_key(*one): one[1].params.get("idle_s", one[1].period_s) for one in own.values()}
    each = (f"{name}: {{period: {s * 1000 / FASTER:g}ms}}" for name, s in periods.items() if name not in KEEP)
    return f"checks: {{{', '.join(each)}}}"


def _key(kind: str, check: CheckSpec) -> str:
    """What the cluster file calls it."""
    return f"{kind}.{check.name}"


def counted(status: Mapping[str, Any]) -> Counts:
    checks = {f"{c} {name}": check for c, x in status["components"].items() for name, check in x["checks"].items()}
    return {name: {key: int(check[key]) for key in ("runs", "unknowns", "failing")} for name, check in checks.items()}


def worth(before: Counts, after: Counts, fast: Mapping[str, tuple[str, CheckSpec]]) -> tuple[float, str, float]:
    """How many hours of checks that was, by the one of the faster ones that ran least: its runs times its own period;
    which one that is; and the share of all runs that told nothing."""
    # one of another instance has begun anew
    had = {n: before[n] if before[n]["runs"] <= after[n]["runs"] else {"runs": 0, "unknowns": 0} for n in fast}
    runs = {n: after[n]["runs"] - had[n]["runs"] for n in fast}
    unknown = sum(after[n]["unknowns"] - had[n]["unknowns"] for n in fast)
    hours = {n: runs[n] * c.period_s * FASTER / 3600 for n, (kind, c) in fast.items() if _key(kind, c) not in KEEP}
    least = min(hours, key=lambda n: hours[n])
    return hours[least], f"{least}, n {runs[least]}", unknown / max(1, sum(runs.values()))


def measure(wanted: Set[str]) -> Iterator[Row]:
    text = cluster_text()
    with yrnode(text, start=False) as node:
        node.config.write_text(text + faster(specs(node.config)) + "\n")
        fast = specs(node.config)
        node.start()
        node.wait_ready(120)
        node.wait("all checks in order", lambda: _in_order(node), 30)
        ports = [int(text.partition("    port: ")[2].split()[0]) + i for i in (0, 1)]
        last, before = node.events()[-1]["seq"], counted(node.status())
        plain = [0]
        with saturated(ports), probing(ports, plain):
            time.sleep(FOR_S)
            # it may be late to answer, which is no reason to give up
            after = node.wait("status", lambda: counted(node.status()), 60)
        found = [e for e in node.events() if e["seq"] > last and e["what"] in ALARMS]
    hours, least, unknown = worth(before, after, fast)
    words = ", ".join(f"{e['target']} {e['what']}: {e['text']} ({e.get('evidence', '')})" for e in found[:5])
    note = (
        f"{hours:.2g} hours of checks by the one that ran least ({least}), {unknown:.1%} of all unknown, "
        f"in {FOR_S:.0f} s; periods a {FASTER}th, but of {' and '.join(KEEP)}, "
        "which count in them; time-outs as they are; "
        f"{BUSY_A_CORE} busy processes a core, {REQUESTS} requests at each rank" + (f": {words}" if words else "")
    )
    why = f"GET /health, {PROBE_TIMEOUT_S:g} s, {PROBE_FAILURES} misses in a row, as often"
    yield Row("false-alarms", (float(len(found)),), (Peer("plain probe", float(plain[0]), 1, why),), note)


def _in_order(node: YrNode) -> bool:
    checks = counted(node.status()).values()
    return bool(checks) and not any(c["failing"] for c in checks)


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
