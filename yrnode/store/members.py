"""etcd's members one by one: who is in the list, who answers, and changes of the list.

The client port of a member serves nobody before its first quorum; its peer port answers from the start, with the list
as that member knows it. While a node's etcd waits to start, the node says on that port whether it is new.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, replace

import aiohttp

from yrnode.model.member import Kept, Listed, Living, Word
from yrnode.store import wire
from yrnode.store.credentials import NONE, Credentials
from yrnode.store.errors import StoreError
from yrnode.store.transport import Transport, within
from yrnode.store.wire import Json, Request

WORD, CLUSTER = "yrnode-member", "yrnode-cluster"
"""The keys of a waiting node's word: what it says, and whose member it waits to be."""
TIMEOUT_S = 1.0
CHANGE_S = 5.0
_LONGEST = 256 * 1024


@dataclass(frozen=True)
class PeerPort:
    """What a peer port says: the id of its cluster and the list of its members, or a node's word and whose it is."""

    cluster: int = 0
    members: tuple[Listed, ...] = ()
    word: Word | None = None
    whose: str = ""

    @property
    def formed(self) -> bool:
        """Whether this cluster has ever had a quorum: its members tell each other their clients' URLs through it."""
        return any(m.started for m in self.members)


class Members:
    """Each call asks the one member that it names, once. Raises StoreErrors alone."""

    def __init__(self, credentials: Credentials = NONE) -> None:
        self._ssl: ssl.SSLContext | bool = credentials.client_context() or True
        # call_at names the endpoint each time
        where = ("http://127.0.0.1",)
        self._asks = Transport(where, timeout_s=TIMEOUT_S, credentials=credentials)
        self._changes = Transport(where, timeout_s=CHANGE_S, credentials=credentials)
        # a log-in takes a quorum, and this question does not need one
        self._plain = Transport(where, timeout_s=TIMEOUT_S, credentials=replace(credentials, user="", password=""))
        self._session: aiohttp.ClientSession | None = None

    async def at_peer_port(self, url: str) -> PeerPort | None:
        """What answers there, without a quorum; None where nobody does, or somebody else."""
        try:
            return await within(self._ask_peer(url), TIMEOUT_S)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    async def living(self, node: str, url: str, key: str) -> Living | None:
        """The cluster of the member at this client URL, as its quorum knows it; None without a quorum.

        `key` holds the store's uuid. The list is read after it by the same member, so that it is as new (etcd 3.4
        has no linearizable list).
        """
        try:
            found = await self._asks.call_at(url, wire.get(key))
            cluster, members = await self._asks.call_at(url, _listing())
        except StoreError:
            return None
        store = found.value.decode("utf-8", "replace") if found else ""
        return Living(node, cluster, store, members)

    async def identity(self, url: str, key: str) -> Kept | None:
        """The same of our own member; None while it has no quorum."""
        try:
            found = await self._asks.call_at(url, wire.get(key))
            cluster, member = await self._asks.call_at(url, _status())
        except StoreError:
            return None
        return Kept(cluster, member, found.value.decode("utf-8", "replace") if found else "")

    async def answers(self, url: str) -> bool:
        """Whether the member at this client URL answers for itself, quorum or not."""
        try:
            await self._plain.call_at(url, _status())
        except StoreError:
            return False
        return True

    async def add(self, url: str, peer_url: str) -> int:
        """A new entry of the list, by the member at `url`: its id."""
        body = {"peerURLs": [peer_url]}
        return await self._changes.call_at(url, Request("cluster/member/add", body, lambda a: int(a["member"]["ID"])))

    async def remove(self, url: str, member: int) -> None:
        """Take one entry off the list."""
        await self._changes.call_at(url, Request("cluster/member/remove", {"ID": str(member)}, lambda _: None))

    async def close(self) -> None:
        for transport in (self._asks, self._changes, self._plain):
            await transport.close()
        if self._session is not None:
            await self._session.close()

    async def _ask_peer(self, url: str) -> PeerPort | None:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._ssl, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        async with self._session.get(f"{url}/members", allow_redirects=False) as response:
            answer = json.loads(await response.content.read(_LONGEST))
            if isinstance(answer, dict):
                return PeerPort(word=Word(answer[WORD]), whose=str(answer[CLUSTER]))
            cluster = int(response.headers["X-Etcd-Cluster-Id"], 16)
            return PeerPort(cluster, tuple(_listed(m, "id") for m in answer))


class PeerWord:
    """Says on this node's peer port, which its etcd does not have yet, whether the node is new to `cluster`.

    The answer is no success, so that another member, who asks for a list there, takes it for none.
    """

    def __init__(self, cluster: str, host: str, port: int, ssl_context: ssl.SSLContext | None = None) -> None:
        self._cluster = cluster
        self._where = (host, port, ssl_context)
        self._answer = b""
        self._server: asyncio.AbstractServer | None = None

    async def say(self, word: Word | None) -> None:
        """From now on; nothing at all for None. OSError where the port cannot be had."""
        if word is None:
            await self.hush()
            return
        body = json.dumps({WORD: word.value, CLUSTER: self._cluster}).encode()
        head = f"HTTP/1.1 503 Not yet\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._answer = head.encode() + b"Connection: close\r\n\r\n" + body
        if self._server is None:
            host, port, context = self._where
            self._server = await asyncio.start_server(self._reply, host, port, ssl=context, limit=8192)

    async def hush(self) -> None:
        """The port is free again on return."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await within(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
            writer.write(self._answer)
            await within(writer.drain(), TIMEOUT_S)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


def _listing() -> Request[tuple[int, tuple[Listed, ...]]]:
    def parse(answer: Json) -> tuple[int, tuple[Listed, ...]]:
        return int(answer["header"]["cluster_id"]), tuple(_listed(m, "ID") for m in answer["members"])

    return Request("cluster/member/list", {}, parse)


def _status() -> Request[tuple[int, int]]:
    """The ids of the cluster and of the member."""

    def parse(answer: Json) -> tuple[int, int]:
        return int(answer["header"]["cluster_id"]), int(answer["header"]["member_id"])

    return Request("maintenance/status", {}, parse)


def _listed(entry: Json, id_key: str) -> Listed:
    urls = tuple(str(u) for u in entry.get("peerURLs", ()))
    return Listed(int(entry[id_key]), str(entry.get("name", "")), urls, bool(entry.get("clientURLs")))
