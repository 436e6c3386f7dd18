"""Whether the ranks of an absent node still listen. Its absence alone says nothing about them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from yrnode.checks.http import blamed
from yrnode.config.cluster import Cluster
from yrnode.config.layout import servers
from yrnode.model.verdict import Verdict
from yrnode.node.pace import pause_s
from yrnode.node.world import World
from yrnode.store.transport import within

PERIOD_S = 2.0
TIMEOUT_S = 2.0
Ports = Mapping[str, tuple[tuple[str, int], ...]]


def ports_of(cluster: Cluster, node: str) -> Ports:
    """By group, where its part on a node listens. What has no port of its own, a headless server, is known by its
    worker's."""
    address = cluster.nodes[node].address
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for name, group in cluster.groups.items():
        here = servers(name, group, node)
        if here:
            found[name] = tuple((address, s.port or cluster.datasystem.port) for s in here)
    return found


class Peers:
    """Keeps `absent[node].dead` of the world true: the groups of which nothing listens on that node any more."""

    def __init__(self, world: World, cluster: Cluster, wake: Callable[[], None]) -> None:
        self._world, self._cluster, self._wake = world, cluster, wake
        self._task = asyncio.create_task(self._run(), name="peers")

    async def _run(self) -> None:
        while True:
            for node, away in list(self._world.absent.items()):
                asked_at = time.monotonic()
                dead = await self._dead(node)
                now = self._world.absent.get(node)
                # an answer about an earlier absence is void
                if now is not None and now.since == away.since and asked_at >= away.since and now.dead != dead:
                    self._world.absent = {**self._world.absent, node: replace(now, dead=dead)}
                    self._wake()
            await asyncio.sleep(pause_s(time.monotonic(), PERIOD_S))

    async def _dead(self, node: str) -> frozenset[str]:
        wanted = ports_of(self._cluster, node)
        heard = await asyncio.gather(*(self._any(ports) for ports in wanted.values()))
        return frozenset(group for group, listens in zip(wanted, heard, strict=True) if not listens)

    async def _any(self, ports: tuple[tuple[str, int], ...]) -> bool:
        return any(await asyncio.gather(*(_listens(host, port) for host, port in ports)))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _listens(host: str, port: int) -> bool:
    """Whether something may listen there: where this process itself could not ask, that may be so."""
    try:
        _, writer = await within(asyncio.open_connection(host, port), TIMEOUT_S)
    except asyncio.TimeoutError:
        return False
    except OSError as e:
        return blamed(e, "").verdict is Verdict.UNKNOWN
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
