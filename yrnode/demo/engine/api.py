"""The API server: vLLM's HTTP endpoints in front of one or more engines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from yrnode.demo.engine.completions import BadRequest, Completions, error_body
from yrnode.demo.engine.frontend import Frontend
from yrnode.demo.engine.metrics import Page
from yrnode.demo.engine.titles import log, uvicorn

if TYPE_CHECKING:
    from yrnode.demo.engine.leader import Leader

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """Routes, keys, the load count and the server's own end."""

    def __init__(self, leader: Leader) -> None:
        self.options = leader.options
        self.frontend = Frontend(self.options)
        self.completions = Completions(self.options, self.frontend)
        self.active = 0  # completions between their first and last byte
        self.idle = asyncio.Event()
        self.idle.set()
        self.ended = asyncio.Event()
        self.app = web.Application(middlewares=[self._guard], client_max_size=1 << 28)
        get, post = self.app.router.add_get, self.app.router.add_post
        for prefix in {"", self.options.root_path}:
            get(f"{prefix}/health", self._health)
            for method in (get, post):
                method(f"{prefix}/ping", self._health)
            get(f"{prefix}/version", self._version)
            get(f"{prefix}/load", self._load)
            get(f"{prefix}/metrics", self._metrics)
            get(f"{prefix}/v1/models", self._models)
            post(f"{prefix}/v1/completions", self._counted(self.completions.text))
            post(f"{prefix}/v1/chat/completions", self._counted(self.completions.chat))

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Keys on /v1 only; errors in vLLM's shape; the access log."""
        keys = self.options.api_keys or tuple(filter(None, [os.environ.get("VLLM_API_KEY")]))
        path = request.path.removeprefix(self.options.root_path)
        response: web.StreamResponse
        if (
            keys
            and path.startswith("/v1")
            and request.headers.get("Authorization") not in {f"Bearer {k}" for k in keys}
        ):
            response = web.json_response({"error": "Unauthorized"}, status=401)
        else:
            try:
                response = await handler(request)
            except BadRequest as error:
                response = web.json_response(error.body, status=error.status)
            except web.HTTPException as error:
                response = web.json_response({"detail": error.reason}, status=error.status)
            except Exception as error:
                log("ERROR", f"{type(error).__name__}: {error}")
                response = web.json_response(error_body(str(error), "InternalServerError", 500), status=500)
        if self.options.access_log:
            host, port = ((request.transport and request.transport.get_extra_info("peername")) or ("-", 0))[:2]
            line = f'{host}:{port} - "{request.method} {request.path} HTTP/1.1"'
            uvicorn(f"{line} {response.status} {response.reason or ''}".rstrip())
        return response

    def _counted(self, handler: Handler) -> Handler:
        async def count(request: web.Request) -> web.StreamResponse:
            self.active += 1
            self.idle.clear()
            try:
                return await handler(request)
            finally:
                self.active -= 1
                if not self.active:
                    self.idle.set()

        return count

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.frontend.dead else 200)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0+standin"})

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": self.active if self.options.track_load else 0})

    async def _metrics(self, _: web.Request) -> web.Response:
        text = Page(self.options.served[0], [e.metrics for e in self.frontend.engines]).render()
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def _models(self, _: web.Request) -> web.Response:
        models = [
            {
                "id": name,
                "object": "model",
                "created": int(self.frontend.engines[0].metrics.created),
                "owned_by": "vllm",
                "root": self.options.model,
                "parent": None,
                "max_model_len": self.options.max_model_len,
            }
            for name in self.options.served
        ]
        return web.json_response({"object": "list", "data": models})

    async def run(self, leader: Leader) -> None:
        """Serve until TERM or the engine's death."""
        if leader.http is None:
            raise RuntimeError("a headless process serves no HTTP")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._term)
        self.frontend.on_death = self._engine_died
        await self.frontend.connect(leader.fronts)
        runner = web.AppRunner(self.app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await runner.setup()
        context = None
        if self.options.tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*self.options.tls)
        self.site = web.SockSite(runner, leader.http, ssl_context=context)
        await self.site.start()
        scheme = "https" if context else "http"
        log("INFO", f"Starting vLLM server on {scheme}://{self.options.host}:{self.options.port}")
        uvicorn("Application startup complete.")
        await self.ended.wait()
        uvicorn("Shutting down")
        await self.site.stop()
        if self.options.hang_on_term and self.frontend.stopping:
            leader.stop()
            uvicorn("Waiting for connections to close. (CTRL+C to force quit)")
            await self.idle.wait()
        self.frontend.cut()
        await runner.cleanup()
        uvicorn("Application shutdown complete.")

    def _term(self) -> None:
        """TERM: the end, at once or, with `--shutdown-timeout` and the port still up, after what is in flight."""
        if self.frontend.stopping:
            return
        self.frontend.stopping = True
        asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.idle.wait(), self.options.shutdown_timeout)
        self.ended.set()

    def _engine_died(self) -> None:
        """503 for a moment, then the end, with exit code 0."""
        log("ERROR", "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if not os.environ.get("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"):
            asyncio.get_running_loop().call_later(self.options.death_linger, self.ended.set)


def serve(leader: Leader) -> None:
    """Serve a started engine until the end."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    async def main() -> None:
        await Api(leader).run(leader)

    asyncio.run(main())
