"""A GET that must answer 200."""

from __future__ import annotations

import os

import aiohttp

from yrnode.checks.base import Stateless, Target
from yrnode.model.verdict import Result, fail, ok


class HttpCheck(Stateless):
    """params: `url`."""

    async def probe(self, target: Target) -> Result:
        url = self.param("url")
        try:
            async with self.tools.http.get(url, allow_redirects=False) as response:
                await response.read()
        except aiohttp.ClientError as e:
            return fail(f"{url}: {reason(e)}")
        return ok(f"{url}: 200") if response.status == 200 else fail(f"{url}: HTTP {response.status}")


def reason(e: Exception) -> str:
    """A client's error in few words: "connection refused" instead of a page."""
    number = getattr(getattr(e, "os_error", e), "errno", None)
    return os.strerror(number) if number else (str(e) or type(e).__name__)[:200]
