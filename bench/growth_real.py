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

from tests.support.agent import GROUP, Agent
from tests.support.etcd import ETCD_35, start_etcd
from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Move, Plane
from yrnode.node.storewatch import StoreWatch
from yrnode.node.storewrites import StoreWrites
from yrnode.policy.plan import decide
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance
from yrnode.process.launch import Owner, launch
from yrnode.store.keys import ClusterKeys

KILLS = 20
SETTLE_S = 3.0
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


async def cluster(nodes: int, quiet_s: float, limit_s: float) -> dict[str, Any] | None:
    """So many real coordinations over a real etcd: what they ask and write while nothing happens, by node and second,
    and how long one restart of all takes. None where they were not ready, or not again, within `limit_s`."""
    names = tuple(f"n{i}" for i in range(nodes))
    with (
        tempfile.TemporaryDirectory(prefix="yrg-", dir="/tmp") as where,
        start_etcd(Path(where) / "etcd", ETCD_35) as etcd,
    ):
        agents = [Agent(name, names, etcd.url, Path(where)) for name in names]
        watches: list[StoreWatch | StoreWrites] = []
        try:
            began = time.monotonic()
            for agent in agents:
                await agent.start()
                # as the supervisor does; the agent of the tests is told that the store answers
                watches.append(StoreWatch(agent.store, agent.keys.store, lambda *_: None))
                watches.append(StoreWrites(agent.store, "etcdctl", agent.world, agent.events, agent.wake.set))
            if not await _until(lambda: all(_all_known(a) for a in agents), limit_s):
                return None
            ready_s = time.monotonic() - began
            # what the start has left to tell is told by then
            await asyncio.sleep(SETTLE_S)
            quiet = await _quiet(agents, etcd.url, quiet_s)
            took = repeated(lambda: decide(agents[0].world.snapshot(time.monotonic(), 0.5)))
            restart = await _restart(agents, limit_s)
            if restart is None:
                return None
            return {"ready_s": ready_s, **quiet, "round_cpu": took, **restart}
        finally:
            for watch in watches:
                await watch.close()
            for agent in agents:
                await agent.close()


async def _quiet(agents: list[Agent], url: str, seconds: float) -> dict[str, Any]:
    """What is asked and written while nothing happens. `other_writes`: by key, but the nodes' own."""
    keys = ClusterKeys("agents")
    writes: Counter[str] = Counter()
    watch = agents[0].store.watch(keys.root)
    first = asyncio.Event()

    async def note() -> None:
        async for batch in watch:
            if first.is_set():
                writes.update(e.key for e in batch)
            first.set()

    reading = asyncio.create_task(note())
    await first.wait()
    before, cpu, began = await _ask(url), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    after, cpu, lasted = await _ask(url), time.process_time() - cpu, time.monotonic() - began
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await watch.close()
    rose = {name: after[name] - before.get(name, 0.0) for name in after}
    per = len(agents) * lasted
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


def _all_known(a: Agent) -> bool:
    """Whether this node is ready, and has heard that all others are: nothing of the start is left to be told."""
    return a.ready and a.world.groups[GROUP].ready_since is not None


async def _restart(agents: list[Agent], limit_s: float) -> dict[str, float] | None:
    """From an operator's word to one node until the last one has stopped, and until all are ready again. None where
    that was not so in time: one process has all the nodes here, and may have no time left for their leases."""
    n = agents[0].world.groups[GROUP].record.n
    began, cpu = time.monotonic(), time.process_time()
    agents[-1].restart()
    if not await _until(lambda: all(a.ready and a.life == (n + 1, "go") for a in agents), limit_s):
        return None
    took = time.monotonic() - began
    last = max(a.at[Move.STOP] for a in agents) - began
    return {
        "restart_s": took,
        "last_stop_s": last,
        "restart_node_cpu": (time.process_time() - cpu) / len(agents),
    }
