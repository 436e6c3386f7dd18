"""What checks share, as the node hands it to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest_asyncio

from yrnode.checks.base import Target, Tools

TARGET = Target("worker", "i1", None)


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(trust_env=False) as session:
        yield session


def tools(http: Any = None, store: Any = None, steady_s: float = 1000.0) -> Tools:
    return Tools(http, store, lambda: steady_s)
