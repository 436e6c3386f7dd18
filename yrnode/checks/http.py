"""A GET that must answer 200."""

from __future__ import annotations

import errno
import os

import aiohttp

from yrnode.checks.base import Stateless, Target
from yrnode.model.cover import short
from yrnode.model.verdict import Result, fail, ok, unknown

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
            return blamed(e, f"{url}: {reason(e)}")
        return ok(f"{url}: 200") if response.status == 200 else fail(f"{url}: HTTP {response.status}")


_OURS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EPERM, errno.EACCES}
)


def blamed(e: BaseException, evidence: str) -> Result:
    """A failed request as a verdict: what this process could not do says nothing about the server."""
    at: BaseException | None = e
    while at is not None:
        number = getattr(getattr(at, "os_error", at), "errno", None)
        if number in _OURS:
            return unknown(f"{evidence}; this daemon could not ask")
        at = at.__cause__ or at.__context__
    return fail(evidence)


def reason(e: Exception) -> str:
    """A client's error in few words: "connection refused" instead of a page."""
    cause = getattr(e, "os_error", None) or e
    text = getattr(cause, "strerror", None) or str(cause) or type(e).__name__
    # asyncio's own words name the address, which the reader has, and not the error
    if isinstance(cause, OSError) and cause.errno and text.startswith("Connect call failed"):
        text = os.strerror(cause.errno)
    return short(text, 200)
