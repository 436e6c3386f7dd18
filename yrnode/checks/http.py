"""A GET that must answer 200."""

from __future__ import annotations

import os

import aiohttp

from yrnode.checks.base import Stateless, Target
from yrnode.model.verdict import Result, fail, ok

UNVERIFIED = False
"""For `ssl`: what is asked is our own process on our own address, whose certificate names another host or nobody."""


class HttpCheck(Stateless):
    """params: `url`."""

    async def probe(self, target: Target) -> Result:
        url = self.param("url")
        try:
            async with self.tools.http.get(url, allow_redirects=False, ssl=UNVERIFIED) as response:
                await response.read()
        except aiohttp.ClientError as e:
            return fail(f"{url}: {reason(e)}")
        return ok(f"{url}: 200") if response.status == 200 else fail(f"{url}: HTTP {response.status}")


def reason(e: Exception) -> str:
    """A client's error in few words: "connection refused" instead of a page."""
    cause = getattr(e, "os_error", None) or e
    text = getattr(cause, "strerror", None) or str(cause) or type(e).__name__
    # asyncio's own words name the address, which the reader has, and not the error
    if isinstance(cause, OSError) and cause.errno and text.startswith("Connect call failed"):
        text = os.strerror(cause.errno)
    return text[:200]
