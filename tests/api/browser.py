"""A headless Chromium, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = Path("/usr/bin/chromium")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)


class Tab:
    """One page. `said`: what the page's console and its security policy have complained about."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""
        self.said: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def open(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        found = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        await self._socket.send_json({**message, "sessionId": self._session} if self._session else message)
        return await asyncio.wait_for(answer, 30)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def until(self, script: str, seconds: float = 30.0) -> None:
        """Wait until the expression is true; while a page is on its way it may fail."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(AssertionError):
                if await self.run(f"!!({script})"):
                    return
            assert time.monotonic() < end, f"never: {script}"
            await asyncio.sleep(0.05)

    async def size(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    async def prefer(self, scheme: str) -> None:
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def key(self, name: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code, **more)

    async def picture(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self._socket:
            found = json.loads(message.data)
            if "id" in found:
                answer = self._answers.pop(found["id"])
                if answer.done():
                    continue
                if "error" in found:
                    answer.set_exception(RuntimeError(str(found["error"])))
                else:
                    answer.set_result(found["result"])
            elif found["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(found["params"]))


@contextlib.asynccontextmanager
async def chromium(language: str = "en-US") -> AsyncIterator[Tab]:
    """A browser with a profile of its own; gone with all its processes at the end."""
    with tempfile.TemporaryDirectory(prefix="yrb-", dir="/tmp", ignore_cleanup_errors=True) as profile:
        child = await asyncio.create_subprocess_exec(
            str(CHROMIUM),
            *_FLAGS,
            f"--user-data-dir={profile}",
            f"--lang={language}",
            f"--accept-lang={language}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port, path = await _address(Path(profile) / "DevToolsActivePort")
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=64 * 1024 * 1024) as socket,
            ):
                tab = Tab(socket)
                try:
                    await tab.open()
                    yield tab
                finally:
                    await tab.close()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()


async def _address(file: Path) -> tuple[str, str]:
    end = time.monotonic() + 60
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return lines[0], lines[1]
        assert time.monotonic() < end, "Chromium did not begin to listen"
        await asyncio.sleep(0.05)
