"""The read-only routes, the same on TCP and on the Unix socket."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from yrnode.api import bounds, cache, page, streams
from yrnode.api.bounds import Handler
from yrnode.api.node import Node
from yrnode.api.refusals import Refusals
from yrnode.api.status import reasons, status
from yrnode.model.errors import NotNow, UsageError
from yrnode.policy.hits import LONGEST_S, SHORTEST_S, WINDOW_S
from yrnode.telemetry.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

log = logging.getLogger("yrnode.api")

LONGEST_WAIT_S = 60.0
"""Upper bound of `/events?wait=`."""

NODE = web.AppKey("node", Node)
SHARED = web.AppKey("shared", list[streams.Shared])
REFUSALS = web.AppKey("refusals", Refusals)
_TURNS = web.AppKey("turns", bounds.Turns)
_SENDING = web.AppKey("sending", bounds.Sending)
READS = ("GET", "HEAD")


def read_app(node: Node) -> web.Application:
    """What TCP has: nothing that is sent to it changes anything."""
    return application(node, _read_only)


def application(node: Node, guard: Middleware) -> web.Application:
    """The routes that only read, behind a middleware that says who may do what else."""
    app = web.Application(client_max_size=64 * 1024, middlewares=[_bounded, _errors, guard])
    app[NODE] = node
    app[REFUSALS] = Refusals(node.events)
    app[_TURNS] = bounds.Turns()
    app[_SENDING] = bounds.Sending()
    app[streams.STREAMS] = set()
    app[SHARED] = [
        streams.Shared("status", 0.25, lambda: now_status(node)),
        streams.Shared("cache", 5.0, lambda: _now_cache(node)),
    ]
    app.on_shutdown.append(streams.end_streams)
    app.on_cleanup.append(_end_refusals)
    app.on_response_prepare.append(_say_who)
    for path, handler in _ROUTES.items():
        app.router.add_get(path, handler)
    return app


def now_status(node: Node) -> dict[str, Any]:
    return status(node.snapshot(), node.identity, time.monotonic(), time.time())


def _now_cache(node: Node) -> dict[str, Any]:
    found = cache.cache(node.metrics.hits, node.snapshot(), node.identity, WINDOW_S)
    return {**found, "series": cache.series(node.metrics.hits, time.monotonic())}


@web.middleware
async def _bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """One request a connection, whose answer is sent in a bounded time."""
    bounds.busy(request, True)
    try:
        response = await handler(request)
        if response.prepared:
            return response
        return await request.app[_SENDING].send(request, response)
    finally:
        bounds.busy(request, False)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except UsageError as e:
        return web.json_response({"error": str(e)}, status=400)
    except NotNow as e:
        return web.json_response({"error": str(e)}, status=409)
    except web.HTTPException as e:
        return web.json_response({"error": e.text or e.reason}, status=e.status, headers=_kept(e))
    except ConnectionError:
        raise  # it has gone; aiohttp ends the connection
    except Exception:
        log.exception("%s %s failed", request.method, ascii(request.path)[:80])
        return web.json_response({"error": "a fault of yrnode's own: see its log"}, status=500)


@web.middleware
async def _read_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.method in READS:
        return await handler(request)
    why = "changes are taken on the Unix socket alone: use the yrnode command on this node"
    host, port, *_ = (request.transport and request.transport.get_extra_info("peername")) or ("nowhere", 0)
    request.app[REFUSALS].tell(request, f"{host}:{port} over TCP", why)
    return web.json_response({"error": why}, status=405, headers={"Allow": ", ".join(READS)})


async def _end_refusals(app: web.Application) -> None:
    app[REFUSALS].close()


async def _say_who(request: web.Request, response: web.StreamResponse) -> None:
    # a client that found this port by default can tell that it reached another cluster's daemon
    who = request.app[NODE].identity
    response.headers["Yrnode-Node"] = f"{who.cluster}/{who.node}"


def _kept(e: web.HTTPException) -> dict[str, str]:
    return {k: v for k, v in e.headers.items() if k in ("Allow", "Retry-After")}


async def _livez(request: web.Request) -> web.Response:
    alive = request.app[NODE].alive()
    return web.json_response({"alive": alive}, status=200 if alive else 503)


async def _readyz(request: web.Request) -> web.Response:
    why = reasons(request.app[NODE].snapshot())
    return web.json_response({"ready": not why, "reasons": why}, status=503 if why else 200)


async def _turn(request: web.Request, make: Callable[[], web.Response]) -> web.Response:
    return await request.app[_TURNS].take(make)


async def _status(request: web.Request) -> web.Response:
    return await _turn(request, lambda: web.json_response(now_status(request.app[NODE])))


async def _cache(request: web.Request) -> web.Response:
    node = request.app[NODE]
    window = _number(request, "window")
    if window is not None and not SHORTEST_S <= window <= LONGEST_S:
        raise web.HTTPBadRequest(text=f"window is from {SHORTEST_S:g} to {LONGEST_S:g} seconds")
    seconds = WINDOW_S if window is None else float(window)
    hits = node.metrics.hits
    return await _turn(request, lambda: web.json_response(cache.cache(hits, node.snapshot(), node.identity, seconds)))


async def _metrics(request: web.Request) -> web.Response:
    metrics = request.app[NODE].metrics
    return await _turn(request, lambda: web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE}))


async def _page(request: web.Request) -> web.Response:
    headers = {
        "Content-Security-Policy": page.policy(),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    node = request.app[NODE]

    def make() -> web.Response:
        text = page.render(now_status(node), node.events.since(max(0, node.events.last - page.EVENTS)))
        return web.Response(text=text, content_type="text/html", headers=headers)

    return await _turn(request, make)


async def _logs(request: web.Request) -> web.Response:
    name = request.query.get("name", "")
    return web.json_response({"name": name, "paths": [str(p) for p in request.app[NODE].log_paths(name)]})


async def _events(request: web.Request) -> web.StreamResponse:
    since = _number(request, "since")
    if "text/event-stream" in request.headers.get("Accept", ""):
        last = _number_of_last(request)
        return await streams.follow(request, request.app[NODE], since if last is None else last)
    events = request.app[NODE].events
    wait = min(_number(request, "wait") or 0, LONGEST_WAIT_S)
    since = min(since or 0, events.last)
    if wait and since == events.last:
        await streams.await_event(request, events, since, wait)
    return await _turn(request, lambda: web.json_response([e.as_dict() for e in events.since(since)]))


def _number(request: web.Request, name: str) -> int | None:
    value = request.query.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise web.HTTPBadRequest(text=f'{name} is a whole number, not "{value[:40]}"')
    return int(value)


def _number_of_last(request: web.Request) -> int | None:
    """`Last-Event-ID`, which browsers send when they come back."""
    last = request.headers.get("Last-Event-ID", "")
    return int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None


async def _stream(request: web.Request) -> web.StreamResponse:
    """Status, hit rates and events as they change, for the page."""
    node = request.app[NODE]
    since = _number_of_last(request)
    if since is None:
        since = max(0, node.events.last - page.EVENTS)
    shared = request.app[SHARED]
    return await streams.follow(request, node, since, shared)


_ROUTES = {
    "/livez": _livez,
    "/readyz": _readyz,
    "/status": _status,
    "/cache": _cache,
    "/metrics": _metrics,
    "/events": _events,
    "/stream": _stream,
    "/logs": _logs,
    "/": _page,
}
