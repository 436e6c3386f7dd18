"""What every router can be asked."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import aiohttp

from yrnode.checks.http import reason
from yrnode.model.cover import short
from yrnode.model.routing import Route
from yrnode.store.transport import within


class RouterError(Exception):
    """The router did not do what it was asked, or did not answer in time. One line."""


class RouterAway(RouterError):
    """Nothing listens there: nobody gets requests from it."""


class RouterClient(Protocol):
    """All of it ends within `timeout_s` seconds. RouterError where it was not done, or nobody knows."""

    async def listed(self, timeout_s: float) -> frozenset[str]:
        """URLs of its servers, also of those that it is about to drop."""
        ...

    async def add(self, route: Route, timeout_s: float) -> None:
        """A server that is there already stays. It may be listed only later."""
        ...

    async def remove(self, route: Route, timeout_s: float) -> None:
        """No new request goes to it from now on. It may be listed until the router has no request at all."""
        ...


async def ask(http: aiohttp.ClientSession, method: str, url: str, timeout_s: float, **more: Any) -> Any:
    """The JSON of an answer 200, its text where it is no JSON. RouterError for everything else."""
    try:
        return await within(_ask(http, method, url, **more), timeout_s)
    except asyncio.TimeoutError:
        raise RouterError(f"{url}: no answer within {timeout_s:g} s") from None
    except aiohttp.ClientError as e:
        refused = isinstance(getattr(e, "os_error", None), ConnectionRefusedError)
        raise (RouterAway if refused else RouterError)(f"{url}: {reason(e)}") from None


async def _ask(http: aiohttp.ClientSession, method: str, url: str, **more: Any) -> Any:
    async with http.request(method, url, allow_redirects=False, **more) as response:
        text = await response.text()
        if response.status != 200:
            raise RouterError(f"{url}: HTTP {response.status} {short(' '.join(text.split()), 160)}".rstrip())
        try:
            return await response.json(content_type=None)
        except ValueError:
            return text
