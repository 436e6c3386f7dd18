"""vllm-ascend's sample proxy.

A server that it is to drop while it has any request at all is only set aside, and stays in its list until it has
none. As long as it is listed, to add it again takes it back in v0.18, and does nothing later. What is added joins at
once in v0.18, later when it next looks, and is forgotten silently where it does not answer.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp

from yrnode.components.routers.base import RouterError, ask
from yrnode.model.cover import short
from yrnode.model.routing import Role, Route


class AscendProxy:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url = http, url

    async def listed(self, timeout_s: float) -> frozenset[str]:
        # it has no list of its own; to add nothing tells it
        return await self._adjust("add", Role.PREFILL, [], timeout_s)

    async def add(self, route: Route, timeout_s: float) -> None:
        await self._adjust("add", route.role, [urlsplit(route.url).netloc], timeout_s)

    async def remove(self, route: Route, timeout_s: float) -> None:
        await self._adjust("remove", route.role, [urlsplit(route.url).netloc], timeout_s)

    async def _adjust(self, what: str, role: Role, servers: list[str], timeout_s: float) -> frozenset[str]:
        body = {"type": role.value, "instances": servers}
        answer = await ask(self._http, "POST", f"{self._url}/instances/{what}", timeout_s, json=body)
        try:
            found = [*answer["current_prefill_instances"], *answer["current_decode_instances"]]
        except (KeyError, TypeError):
            said = answer.get("error", answer) if isinstance(answer, dict) else answer
            raise RouterError(f"{self._url}/instances/{what}: {short(str(said), 160)}") from None
        return frozenset(f"http://{server}" for server in found)
