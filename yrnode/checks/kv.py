"""Set and get of several random keys through the real SDK, in one long-lived helper process.

Several keys, because each has one owner of its metadata: when only some fail, a peer is sick, not this worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown

HELPER = Path(__file__).with_name("kv_helper.py")
SIZE = 1024
LOADING_S = 30.0
"""A helper that has not loaded the SDK by then is replaced."""


class KvCheck(Stateless):
    """params: `python` (interpreter that has the SDK), `host`, `port`, `keys` (how many), `env`, `log` (path)."""

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._helper: Helper | None = None

    @property
    def asker(self) -> int | None:
        return self._helper.pid if self._helper is not None else None

    async def probe(self, target: Target) -> Result:
        if self._helper is None or not self._helper.usable:
            await self.close()
            try:
                self._helper = self._start()
            except OSError as e:
                return unknown(f"cannot start the SDK helper with {self.param('python')}: {e.strerror}")
            await self._helper.connect()
        greeting = await self._helper.greet(self.spec.timeout_s / 2)
        if greeting is None:
            return unknown("the SDK helper is still loading")
        if not greeting.get("hello"):
            return unknown(f"the SDK cannot be loaded: {greeting.get('error', 'it ended; see ' + self.param('log'))}")
        keys = [f"yrnode-probe-{secrets.token_hex(8)}" for _ in range(self.param("keys"))]
        answer = await self._helper.ask({"keys": keys, "size": SIZE})
        if answer is None:
            return unknown(f"the SDK helper gave no answer; see {self.param('log')}")
        if "error" in answer:
            return fail(f"KV: {answer['error']}")
        failed = answer.get("failed")
        if failed:
            verdict = fail if len(failed) == len(keys) else unknown
            return verdict(f"KV: {len(failed)} of {len(keys)} keys failed: {next(iter(failed.values()))}")
        return ok(f"KV: set and get of {len(keys)} random keys")

    def _start(self) -> Helper:
        argv = [self.param("python"), str(HELPER), self.param("host"), str(self.param("port"))]
        argv.append(str(int(self.spec.timeout_s * 800)))
        return Helper(argv, self.param("env"), Path(self.param("log")))

    async def close(self) -> None:
        if self._helper is not None:
            helper, self._helper = self._helper, None
            await helper.close()


class Helper:
    """The child process, which answers a line with a line. OSError when it cannot be started.

    `usable` ends with the first question that was given up: a late answer would be mistaken for the next one's.
    """

    def __init__(self, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self._child, self._stdin, self._stdout = _spawn(argv, env, log)
        self._reader = asyncio.StreamReader()
        self._pipe: asyncio.BaseTransport | None = None
        self._hello: asyncio.Task[bytes] | None = None
        self._until = time.monotonic() + LOADING_S
        self.usable = False

    @property
    def pid(self) -> int:
        return self._child.pid

    async def connect(self) -> None:
        """Before the first question. Not part of the start: a probe may be given up here, and the child is known."""
        self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), self._stdout
        )
        self._hello = asyncio.create_task(self._reader.readline())
        self.usable = True

    async def greet(self, wait_s: float) -> dict[str, Any] | None:
        """What the helper said when it had loaded the SDK; None while it loads, which is no fault of a worker."""
        if self._hello is None:
            return {}
        await asyncio.wait({self._hello}, timeout=wait_s)
        if not self._hello.done():
            self.usable = time.monotonic() < self._until
            return None
        try:
            greeting = json.loads(self._hello.result())
        except ValueError:
            greeting = {}
        self.usable = isinstance(greeting, dict) and bool(greeting.get("hello"))
        return greeting if isinstance(greeting, dict) else {}

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """None when the helper has ended or says something else than an answer. Cancel to give up."""
        self.usable = False
        try:
            # far below a pipe's size: never blocks on a live or a hung helper
            os.write(self._stdin, json.dumps(request).encode() + b"\n")
        except OSError:
            return None
        try:
            answer = json.loads(await self._reader.readline())
        except ValueError:
            return None
        self.usable = isinstance(answer, dict)
        return answer if self.usable else None

    async def close(self) -> None:
        """Kill it: it holds nothing that is worth a farewell."""
        self._child.kill()
        if self._hello is not None:
            self._hello.cancel()
        if self._pipe is not None:
            self._pipe.close()
        else:
            self._stdout.close()
        with contextlib.suppress(OSError):
            os.close(self._stdin)
        await asyncio.to_thread(self._child.wait, 10)


def _spawn(argv: list[str], env: Mapping[str, str], log: Path) -> tuple[subprocess.Popen[bytes], int, IO[bytes]]:
    """The child, the descriptor to write questions to, and the file to read answers from."""
    log.parent.mkdir(parents=True, exist_ok=True)
    theirs, ours = os.pipe()
    try:
        with open(log, "ab") as out:
            child = subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE, stderr=out, env=dict(env))
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return child, ours, cast("IO[bytes]", child.stdout)
