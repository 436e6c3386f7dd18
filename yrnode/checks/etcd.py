"""etcd proves itself by a linearizable read, and before it counts as ready by a write too.

A TCP connect proves nothing: a frozen etcd accepts connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.checks.http import blamed
from yrnode.model.verdict import WAITS, Result, fail, ok, unknown
from yrnode.policy.members import majority
from yrnode.store.errors import StoreError, StoreRefused
from yrnode.store.interface import Alarm, Status, Store
from yrnode.store.transport import within

MB = 1024 * 1024
NEARLY_FULL = 0.9
_ALARMED = ("database space exceeded", "corrupt cluster")


class EtcdReadCheck(Stateless):
    """params: `key`; with other members also `url`, this one's client URL.

    A member that answers for itself has lost its quorum, or its leader: that is not its fault, and no restart brings
    the others back.
    """

    async def probe(self, target: Target) -> Result:
        url = self.spec.params.get("url")
        try:
            if url is None:
                await _own(self.tools).get(self.param("key"))
            else:
                await within(_own(self.tools).get(self.param("key")), self.spec.timeout_s / 2)
        except StoreRefused as e:
            # it answered: what it objects to is us, and a restart would not change its mind
            return unknown(f"linearizable read: {e}")
        except (StoreError, asyncio.TimeoutError) as e:
            said = f"linearizable read: {e if str(e) else 'no answer in time'}"
            if url is not None and self.tools.members is not None and await self.tools.members.answers(url):
                return unknown(f"no quorum or no leader; this member answers for itself; {said}")
            return blamed(e, said)
        return ok("linearizable read answered")


class EtcdQuorumCheck(Stateless):
    """Whether enough of the members are there. params: `peer`, this one's peer URL; `others`, node to peer URL."""

    async def probe(self, target: Target) -> Result:
        ask, mine, named = self.tools.members, self.param("peer"), self.param("others")
        own = None if ask is None else await ask.at_peer_port(mine)
        if ask is None or own is None or not own.members:
            return unknown("its peer port does not answer")
        listed = {m.peer_urls[0]: m.name or f"{m.id:x}" for m in own.members if mine not in m.peer_urls}
        names = {url: node for node, url in named.items()}
        names |= {url: name for url, name in listed.items() if url not in names}
        found = dict(zip(names, await asyncio.gather(*map(ask.at_peer_port, names)), strict=True))
        strangers: dict[int, list[str]] = {}
        for url in named.values():
            port = found[url]
            if port is not None and port.formed and port.cluster != own.cluster:
                strangers.setdefault(port.cluster, []).append(names[url])
        for cluster, who in strangers.items():
            if len(who) >= majority(len(named) + 1):
                text = f"of cluster {own.cluster:x}, while {', '.join(who)} are of cluster {cluster:x}"
                return fail(text, strangers=float(len(who)))
        there = [url for url in names if url in listed and (port := found[url]) and port.cluster == own.cluster]
        away = ", ".join(name for url, name in names.items() if url in listed and url not in there)
        here = f"{1 + len(there)} of {1 + len(listed)} members"
        if 1 + len(there) < majority(1 + len(listed)):
            return fail(f"waits for {away}: no quorum, {here} are there", **{WAITS: 1.0})
        return ok(f"{here} are there" + (f", not {away}" if away else ""))


class EtcdWriteCheck(Stateless):
    """params: `key`, which this check alone writes."""

    async def probe(self, target: Target) -> Result:
        value = f"{target.instance} {time.time_ns()}".encode()
        store, refused = _own(self.tools), ""
        try:
            try:
                await store.put(self.param("key"), value)
            except StoreRefused as e:
                if not any(words in str(e) for words in _ALARMED):
                    raise
                refused = str(e)
            stored = await store.get(self.param("key"))
        except StoreError as e:
            return blamed(e, f"write and read: {e}")
        if refused:
            # it serves reads and keeps leases, and a restart ends no alarm
            return unknown(f"linearizable read answered, writes refused: {refused}", proves=True)
        if stored is None or stored.value != value:
            return fail("a read after a write did not return what was written")
        return ok("write and linearizable read answered")


class EtcdAlarmCheck(Stateless):
    """Alarms of all members, and the size of the database. params: `quota` (bytes), where etcd does not say its own.

    A restart helps against neither: an alarm stays until somebody disarms it.
    """

    async def probe(self, target: Target) -> Result:
        try:
            status = await _own(self.tools).status()
        except StoreError as e:
            return unknown(f"status: {e}")
        quota = status.quota or self.param("quota")
        size = f"db {status.db_size / MB:.1f} of {quota / MB:.0f} MB"
        if status.alarms:
            return fail(f"{alarm_words(status.alarms)}, {size}, writes refused")
        if status.db_size >= NEARLY_FULL * quota:
            return fail(f"{size}: writes will be refused soon; compact and defragment it")
        if status.alarms is None:
            return unknown(f"{size}; the alarms cannot be read")
        return ok(f"no alarm, {size}")


def _own(tools: Tools) -> Store:
    """Through this node's member alone: the others' answers say nothing about it."""
    return tools.own or tools.store


def alarm_words(alarms: Sequence[Alarm]) -> str:
    return ", ".join(f"alarm {a.kind} on member {a.member:x}" for a in alarms)


def cure(status: Status, etcdctl: str) -> tuple[str, ...]:
    """The commands that end a NOSPACE alarm, in order. They are an operator's: what is compacted is gone.

    `etcdctl`: how each begins. Empty where the alarm is another: what is corrupt needs a look first.
    """
    if not status.alarms or any(a.kind != "NOSPACE" for a in status.alarms):
        return ()
    return f"{etcdctl} compact {status.revision}", f"{etcdctl} defrag", f"{etcdctl} alarm disarm"
