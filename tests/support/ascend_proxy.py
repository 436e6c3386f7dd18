"""A stand-in for vllm-ascend's sample proxy, with the traits that a supervisor meets.

It is a script, as the real one: it needs every server on its command line, has no list and no failure detection,
drops a server only when it has no request at all, and takes one only after a look of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

ISOLATED = 1e15


def key_of(server: str) -> str:
    return server.replace("localhost", "0.0.0.0").replace("127.0.0.1", "0.0.0.0")


@dataclass
class Pool:
    """Servers of one kind by key, in the order of their coming; `load` of each; which are set aside."""

    servers: dict[str, str] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)
    aside: set[str] = field(default_factory=set)

    def add(self, server: str) -> None:
        self.servers.setdefault(key_of(server), server)

    def pick(self) -> str:
        if not self.servers:
            raise LookupError("none available")
        order = list(self.servers)
        return min(order, key=lambda k: (ISOLATED if k in self.aside else self.load.get(k, 0.0), order.index(k)))


class Proxy:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.pools = {"prefill": Pool(), "decode": Pool()}
        for kind, hosts, ports in (
            ("prefill", options.prefiller_hosts, options.prefiller_ports),
            ("decode", options.decoder_hosts, options.decoder_ports),
        ):
            for host, port in zip(hosts, ports, strict=True):
                self.pools[kind].add(f"{host}:{port}")
        self.waiting: dict[str, tuple[str, str, int]] = {}
        self.requests = 0

    # membership

    async def adjust(self, request: web.Request) -> web.Response:
        body = await request.json()
        kind, servers = body.get("type", ""), body.get("instances", [])
        servers = [servers] if isinstance(servers, str) else servers
        if kind not in self.pools:
            return web.json_response({"error": f"Instance type {kind!r} is not supported."})
        if request.path.endswith("add"):
            self._add(kind, servers)
        else:
            while self.options.standin_remove_waits and self.requests:
                await asyncio.sleep(0.05)
            self._remove(kind, servers)
        listed = {f"current_{k}_instances": list(pool.servers.values()) for k, pool in self.pools.items()}
        return web.json_response({"message": "done", **listed})

    def _add(self, kind: str, servers: list[str]) -> None:
        for server in servers:
            if key_of(server) not in self.pools[kind].servers and key_of(server) not in self.waiting:
                self.waiting[key_of(server)] = (kind, server, 0)

    def _remove(self, kind: str, servers: list[str]) -> None:
        keys, pool = {key_of(s) for s in servers}, self.pools[kind]
        if keys and self.requests:
            pool.aside |= keys
            return
        for key in keys:
            pool.servers.pop(key, None)
            self.waiting.pop(key, None)
        pool.aside -= keys

    async def listen(self) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                for key, (kind, server, tries) in list(self.waiting.items()):
                    if await self._answers(http, server):
                        self.pools[kind].add(server)
                        self.waiting.pop(key, None)
                    elif tries + 1 >= self.options.max_waiting_retries:
                        self.waiting.pop(key, None)
                    else:
                        self.waiting[key] = (kind, server, tries + 1)
                if not self.requests:
                    for pool in self.pools.values():
                        for key in pool.aside:
                            pool.servers.pop(key, None)
                        pool.aside.clear()
                await asyncio.sleep(self.options.waiting_retry_interval)

    async def _answers(self, http: aiohttp.ClientSession, server: str) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with http.get(f"http://{server}/v1/models", timeout=aiohttp.ClientTimeout(5)) as answer:
                return answer.status == 200
        return False

    async def health(self, _: web.Request) -> web.Response:
        counts = {f"{kind}_instances": len(pool.servers) for kind, pool in self.pools.items()}
        return web.json_response({"status": "ok", **counts, "request_num": self.requests})

    # requests

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests += 1
        try:
            first = await self._send("prefill", request.path, {**body, "max_tokens": 1, "stream": False})
            if first is None:
                return web.Response(status=500, text="Internal Server Error")
            # what goes wrong behind the first byte is swallowed
            return web.Response(body=await self._send("decode", request.path, body) or b"")
        finally:
            self.requests -= 1

    async def _send(self, kind: str, path: str, body: dict[str, object]) -> bytes | None:
        pool = self.pools[kind]
        try:
            key = pool.pick()
        except LookupError:
            return None
        pool.load[key] = pool.load.get(key, 0.0) + 1
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as http,
                http.post(f"http://{pool.servers[key]}{path}", json=body) as answer,
            ):
                return await answer.read() if answer.status == 200 else None
        except aiohttp.ClientError:
            return None
        finally:
            pool.load[key] -= 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=8000)
    for word in ("prefiller", "decoder"):
        parser.add_argument(f"--{word}-hosts", nargs="+", default=["localhost"])
        parser.add_argument(f"--{word}-ports", nargs="+", type=int, default=[8001])
    parser.add_argument("--max-waiting-retries", type=int, default=3)
    parser.add_argument("--waiting-retry-interval", type=float, default=10)
    parser.add_argument("--standin-remove-waits", action="store_true", help="answer a removal when all are idle")
    options = parser.parse_args()
    proxy = Proxy(options)

    async def run(_: web.Application) -> None:
        proxy.listener = asyncio.create_task(proxy.listen())  # type: ignore[attr-defined]

    app = web.Application()
    app.on_startup.append(run)
    app.router.add_get("/healthcheck", proxy.health)
    app.router.add_post("/instances/{what}", proxy.adjust)
    for path in ("/v1/completions", "/v1/chat/completions"):
        app.router.add_post(path, proxy.complete)
    web.run_app(app, host=options.host, port=options.port, print=None, shutdown_timeout=0.5)


if __name__ == "__main__":
    main()
