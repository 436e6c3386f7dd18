"""How many requests a rank still has: what its API server counts, or what its engine runs and keeps waiting."""

from __future__ import annotations

import asyncio

import aiohttp

from yrnode.checks.http import UNVERIFIED
from yrnode.checks.progress import read_page
from yrnode.store.transport import within


async def unfinished(http: aiohttp.ClientSession, url: str, timeout_s: float) -> int | None:
    """0 also where nothing listens; None where it does not say, within `timeout_s` seconds."""
    try:
        return await within(_count(http, url), timeout_s)
    except aiohttp.ClientConnectorError as e:
        return 0 if isinstance(e.os_error, ConnectionRefusedError) else None
    except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, KeyError, TypeError):
        return None


async def _count(http: aiohttp.ClientSession, url: str) -> int | None:
    async with http.get(f"{url}/load", ssl=UNVERIFIED) as response:
        # a server that does not track its load says 0
        load = int((await response.json(content_type=None))["server_load"]) if response.status == 200 else 0
    async with http.get(f"{url}/metrics", ssl=UNVERIFIED) as response:
        if response.status != 200:
            return load or None
        _, engines = read_page(await response.read())
    return max(load, engines)
