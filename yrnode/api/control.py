"""What changes things: routes of the Unix socket alone, for root and the daemon's own user."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psutil
from aiohttp import web

from yrnode.api.app import NODE, read_app
from yrnode.api.node import DRILLS, VERBS, Node

_BODY_S = 5.0
DRAIN_S = 300.0
"""How long requests may take to finish where nobody says."""


@dataclass(frozen=True)
class Peer:
    """The process at the other end of a Unix socket, as the kernel knows it."""

    pid: int
    uid: int

    def __str__(self) -> str:
        try:
            name = psutil.Process(self.pid).name()
        except psutil.Error:
            name = "gone"
        return f"uid {self.uid}, pid {self.pid} ({name})"


def control_app(node: Node) -> web.Application:
    """The read-only routes and `POST /control/{start,stop,restart,drain,…}`."""
    app = read_app(node)
    app.middlewares.insert(0, _only_owner)
    app.router.add_post("/control/{verb}", _control)
    return app


def peer(request: web.Request) -> Peer:
    raw: socket.socket = request.transport.get_extra_info("socket")  # type: ignore[union-attr]
    pid, uid, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid)


@web.middleware
async def _only_owner(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    who = peer(request)
    if request.method != "GET" and who.uid not in (0, os.geteuid()):
        text = f"uid {who.uid} may not change anything here; only root and uid {os.geteuid()} may"
        return web.json_response({"error": text}, status=403)
    return await handler(request)


async def _control(request: web.Request) -> web.Response:
    mine = f"{request.app[NODE].identity.cluster}/{request.app[NODE].identity.node}"
    if request.headers.get("Yrnode-Node", mine) != mine:
        # nodes of one host may share a run_dir by mistake: a word to one must not reach the other
        return web.json_response({"error": f"this is {mine}; check --config and --node"}, status=409)
    verb = request.match_info["verb"]
    if verb.removeprefix("drill-") in DRILLS and verb.startswith("drill-"):
        target, _, _ = _fields(await _body(request))
        drill = verb.removeprefix("drill-")
        return web.json_response(await request.app[NODE].drill(drill, target, str(peer(request))))
    if verb == "drain":
        body = await _body(request)
        seconds = body.pop("timeout_s", DRAIN_S) if isinstance(body, dict) else DRAIN_S
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise web.HTTPBadRequest(text="timeout_s is no number of seconds")
        target, why, dry_run = _fields(body)
        who = str(peer(request))
        return web.json_response(await request.app[NODE].drain(target, who, why, float(seconds), dry_run))
    if verb not in VERBS:
        raise web.HTTPNotFound(text=f'no such verb "{verb[:40]}"; there are {", ".join(VERBS)}')
    target, why, dry_run = _fields(await _body(request))
    return web.json_response(await request.app[NODE].control(verb, target, str(peer(request)), why, dry_run))


async def _body(request: web.Request) -> object:
    try:
        return json.loads(await asyncio.wait_for(request.read(), _BODY_S))
    except asyncio.TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the request was not complete within {_BODY_S:g} s") from None
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(text="the request is not JSON") from None


def _fields(body: object) -> tuple[str, str, bool]:
    known = {"target": str, "why": str, "dry_run": bool}
    if not isinstance(body, dict) or set(body) - set(known):
        raise web.HTTPBadRequest(text="the request is an object with target, and perhaps why and dry_run")
    for key, value in body.items():
        if not isinstance(value, known[key]):
            raise web.HTTPBadRequest(text=f"{key} is no {known[key].__name__}")
    if not body.get("target"):
        raise web.HTTPBadRequest(text="target is missing: a component, a group, or all")
    return body["target"], body.get("why", ""), body.get("dry_run", False)
