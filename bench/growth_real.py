"""What grows with real processes, and with real nodes that share a real etcd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bench.groups import PROCESSES, Hosts, hosts
from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Plane
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance
from yrnode.process.launch import Owner, launch
from yrnode.store.gateway import EtcdGateway
from yrnode.store.keys import ClusterKeys

KILLS = 20
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def repeated(work: Callable[[], object], seconds: float = 0.3) -> float:
    """CPU seconds of one call: the least of as many as fit, at least three."""
    work()
    took, until = [], time.monotonic() + seconds
    while len(took) < 3 or time.monotonic() < until:
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(0.005)
    return True


async def processes(count: int) -> dict[str, float]:
    """So many real children, each watched: what a start, a look at one of them and doing nothing cost, in seconds of
    CPU, and how long after its death one is seen, in seconds."""
    died: dict[str, float] = {}
    found: list[Instance] = []
    with tempfile.TemporaryDirectory(prefix="yrg-", dir="/tmp") as where:
        home = Path(where)
        owner = Owner("growth/n0", home, home)

        def ended(name: str) -> Callable[[Exit], None]:
            return lambda how: died.setdefault(name, time.monotonic())

        try:
            began = time.thread_time()
            for i in range(count):
                name = f"c{i}"
                env = {"PATH": os.defpath}
                spec = ComponentSpec(name, "x", Plane.CACHE, ("sleep", "600"), env, home / name, home / f"{name}.log")
                found.append(launch(spec, 1, owner, ended(name), {}))
            starts = (time.thread_time() - began) / count
            await asyncio.sleep(0.5)
            idle = time.process_time()
            await asyncio.sleep(2.0)
            idle = (time.process_time() - idle) / 2.0
            look = repeated(found[0].members)
            seen = []
            for one in random.sample(found, min(KILLS, count)):
                name = one.spec.name
                began = time.monotonic()
                os.kill(one.pid or 0, signal.SIGKILL)
                if not await _until(lambda name=name: name in died, 10.0):
                    raise RuntimeError(f"the death of {name} was not seen in 10 s")
                seen.append(died[name] - began)
        finally:
            for one in found:
                if one.spec.name not in died and one.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one.pid, signal.SIGKILL)
            await _until(lambda: len(died) == len(found), 10.0)
    return {"start_cpu": starts, "idle_cpu_share": idle, "look_cpu": look, "death_seen": median(seen)}


def cluster(nodes: int, quiet_s: float, limit_s: float) -> dict[str, Any] | None:
    """So many real coordinations over a real etcd: what they ask and write while nothing happens, by node and second,
    and how long one restart of all takes. None where they were not at rest, or not ready again, within `limit_s`."""
    began = time.monotonic()
    until = began + limit_s
    try:
        # no more processes than cores: more would take turns on them
        with hosts(nodes, PROCESSES, probes=True, start_s=limit_s) as found:
            ready_s = time.monotonic() - began
            # what the start has left to tell is told by then
            if not found.settle(until - time.monotonic()):
                return None
            quiet = asyncio.run(_quiet(found, quiet_s))
            return {"ready_s": ready_s, **quiet, **_restart(found, until, quiet["node_cpu"])}
    except TimeoutError:
        return None


async def _quiet(found: Hosts, seconds: float) -> dict[str, Any]:
    """What is asked and written while nothing happens. `other_writes`: by key, but the nodes' own."""
    keys = ClusterKeys("agents")
    writes: Counter[str] = Counter()
    store = EtcdGateway((found.url,))
    watch = store.watch(keys.root)
    first = asyncio.Event()

    async def note() -> None:
        async for batch in watch:
            if first.is_set():
                writes.update(e.key for e in batch)
            first.set()

    reading = asyncio.create_task(note())
    await first.wait()
    before, cpu, began = await _ask(found.url), found.cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    after, cpu, lasted = await _ask(found.url), found.cpu_s() - cpu, time.monotonic() - began
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await watch.close()
    await store.close()
    rose = {name: after[name] - before.get(name, 0.0) for name in after}
    per = len(found.names) * lasted
    requests = {k.partition(" ")[2]: v for k, v in rose.items() if k.startswith("grpc ")}
    return {
        "puts": rose["etcd_mvcc_put_total"],
        "puts_per_s": rose["etcd_mvcc_put_total"] / lasted,
        "other_writes": {k: n for k, n in writes.items() if not k.startswith(keys.nodes)},
        "requests_per_node_s": sum(requests.values()) / per,
        "by_method": {k: round(v / per, 3) for k, v in sorted(requests.items()) if v},
        "etcd_cpu_per_node": rose["process_cpu_seconds_total"] / per,
        "etcd_bytes": after["process_resident_memory_bytes"],
        "node_cpu": cpu / per,
    }


async def _ask(url: str) -> dict[str, float]:
    text = await asyncio.to_thread(lambda: _OPEN(f"{url}/metrics", timeout=20).read().decode())
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for s in family.samples:
            if s.name == "grpc_server_msg_received_total":
                found[f"grpc {s.labels['grpc_method']}"] = s.value
            elif not s.labels:
                found[s.name] = s.value
    return found


def _restart(found: Hosts, until: float, idle: float) -> dict[str, float]:
    """From an operator's word to one node until the last one has stopped, and until all have read that all are ready
    again. TimeoutError where that was not so in time. `idle`: the share of a core that a quiet node takes."""
    n = found.life["n0"][0] + 1
    cpu = found.cpu_s()
    began = found.bump(found.names[-1])
    found.wait(f"life {n}", lambda: found.ready(n), until - time.monotonic())
    took = time.monotonic() - began
    last = max(found.at["stop"].values()) - began
    if not found.settle(until - time.monotonic()):
        raise TimeoutError("words are still read")
    rested = time.monotonic() - began
    return {
        "restart_s": took,
        "last_stop_s": last,
        "restart_node_cpu": (found.cpu_s() - cpu) / len(found.names) - idle * rested,
    }
