"""vLLM's router, the Python package vllm-router; measured with 0.1.17.

One that is told of prefill and decode servers while it runs is started with --enable-igw; it then takes a server
without asking it, and has no second try for one that is dead.
"""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from yrnode.components.routers.base import RouterError, ask
from yrnode.model.cover import short
from yrnode.model.routing import Role, Route


class VllmRouter:
    """`models`: the served model's name, by group."""

    def __init__(self, http: aiohttp.ClientSession, url: str, models: Mapping[str, str]) -> None:
        self._http, self._url, self._models = http, url, models

    async def listed(self, timeout_s: float) -> frozenset[str]:
        answer = await ask(self._http, "GET", f"{self._url}/list_workers", timeout_s)
        try:
            return frozenset(str(url) for url in answer["urls"])
        except (KeyError, TypeError):
            raise RouterError(f"{self._url}/list_workers: {short(str(answer), 160)}") from None

    async def add(self, route: Route, timeout_s: float) -> None:
        if route.role is Role.REGULAR:
            await ask(self._http, "POST", f"{self._url}/add_worker", timeout_s, params={"url": route.url})
            return
        worker = {"url": route.url, "worker_type": route.role.value, "model_id": self._models[route.group]}
        await ask(self._http, "POST", f"{self._url}/workers", timeout_s, json=worker)

    async def remove(self, route: Route, timeout_s: float) -> None:
        await ask(self._http, "POST", f"{self._url}/remove_worker", timeout_s, params={"url": route.url})
