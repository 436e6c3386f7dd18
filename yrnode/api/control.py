"""What changes things: routes of the Unix socket alone, for root and the daemon's own user."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from aiohttp import web

from yrnode.api.app import NODE, READS, REFUSALS, application
from yrnode.api.bounds import Handler
from yrnode.api.node import DRILLS, VERBS, Node
from yrnode.api.peer import peer
from yrnode.model.cause import Cause, Reason

CLEANED = "operator-clean"
"""`what` of the event that says who has cleaned up what."""
_BODY_S = 5.0
DRAIN_S = 300.0
"""How long requests may take to finish where nobody says."""


Reload = Callable[[], dict[str, Any]]
RELOAD: web.AppKey[Reload | None] = web.AppKey("reload")


def control_app(node: Node, reload: Reload | None = None) -> web.Application:
    """The read-only routes and `POST /control/{start,stop,restart,drain,reload,…}`. `reload` is for a thread.
    `cleaned`: what `yrnode clean` has done (`why`), for the events."""
    app = application(node, _only_owner)
    app[RELOAD] = reload
    app.router.add_post("/control/{verb}", _control)
    return app


@web.middleware
async def _only_owner(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.method in READS:
        return await handler(request)
    who = peer(request)
    if who.uid in (0, os.geteuid()):
        return await handler(request)
    why = f"only root and uid {os.geteuid()} may change anything here"
    refusals = request.app[REFUSALS]
    refusals.tell(request, await who.described() if refusals.room else str(who), why)
    return web.json_response({"error": f"uid {who.uid}: {why}; use sudo"}, status=403)


async def _control(request: web.Request) -> web.Response:
    mine = f"{request.app[NODE].identity.cluster}/{request.app[NODE].identity.node}"
    if request.headers.get("Yrnode-Node", mine) != mine:
        # nodes of one host may share a run_dir by mistake: a word to one must not reach the other
        return web.json_response({"error": f"this is {mine}; check --config and --node"}, status=409)
    verb = request.match_info["verb"]
    who = await peer(request).described()
    if verb.removeprefix("drill-") in DRILLS and verb.startswith("drill-"):
        target, why, dry_run = _fields(await _body(request))
        drill = verb.removeprefix("drill-")
        return web.json_response(await request.app[NODE].drill(drill, target, who, why, dry_run))
    if verb == "drain":
        body = await _body(request)
        seconds = body.pop("timeout_s", DRAIN_S) if isinstance(body, dict) else DRAIN_S
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise web.HTTPBadRequest(text="timeout_s is no number of seconds")
        target, why, dry_run = _fields(body)
        return web.json_response(await request.app[NODE].drain(target, who, why, float(seconds), dry_run))
    reload = request.app[RELOAD]
    if verb == "reload" and reload is not None:
        return web.json_response(await asyncio.to_thread(reload))
    if verb == "cleaned":
        target, what, _ = _fields(await _body(request))
        cause = Cause(Reason.OPERATOR, f"clean by {who}: {what}")
        return web.json_response({"seq": request.app[NODE].events.emit(target, CLEANED, cause).seq})
    if verb not in VERBS:
        raise web.HTTPNotFound(text=f'no such verb "{verb[:40]}"; there are {", ".join(VERBS)}')
    target, why, dry_run = _fields(await _body(request))
    return web.json_response(await request.app[NODE].control(verb, target, who, why, dry_run))


async def _body(request: web.Request) -> object:
    try:
        return json.loads(await asyncio.wait_for(request.read(), _BODY_S))
    except asyncio.TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the request was not complete within {_BODY_S:g} s") from None
    except (ValueError, RecursionError):
        raise web.HTTPBadRequest(text="the request is not JSON") from None


def _encodes(text: str) -> bool:
    """Whether the store can hold it: JSON, and a command line in another encoding, can have halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fields(body: object) -> tuple[str, str, bool]:
    known = {"target": str, "why": str, "dry_run": bool}
    if not isinstance(body, dict) or set(body) - set(known):
        raise web.HTTPBadRequest(text="the request is an object with target, and perhaps why and dry_run")
    for key, value in body.items():
        if not isinstance(value, known[key]):
            raise web.HTTPBadRequest(text=f"{key} is no {known[key].__name__}")
        if isinstance(value, str) and not _encodes(value):
            raise web.HTTPBadRequest(text=f"{key} is not UTF-8; write it in UTF-8")
    if not body.get("target"):
        raise web.HTTPBadRequest(text="target is missing: a component, a group, or all")
    return body["target"], body.get("why", ""), body.get("dry_run", False)
