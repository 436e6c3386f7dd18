"""What checks share, as the node hands it to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest_asyncio

from yrnode.checks.base import Target, Tools
from yrnode.checks.pulse import Pulse

TARGET = Target("worker", "i1", None)


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(trust_env=False) as session:
        yield session


class Clock(Pulse):
    """Time as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def start(self) -> None:
        pass

    def clock(self) -> float:
        return self.now


def tools(http: Any = None, store: Any = None, steady_s: float = 1000.0) -> Tools:
    return Tools(http, store, lambda: steady_s)
