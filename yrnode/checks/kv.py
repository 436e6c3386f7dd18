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
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from yrnode.checks.base import Stateless, Target, Tools
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, fail, ok, unknown

HELPER = Path(__file__).with_name("kv_helper.py")
SIZE = 1024


class KvCheck(Stateless):
    """params: `python` (interpreter that has the SDK), `host`, `port`, `keys` (how many), `env`, `log` (path)."""

    def __init__(self, spec: CheckSpec, tools: Tools) -> None:
        super().__init__(spec, tools)
        self._helper: _Helper | None = None

    async def probe(self, target: Target) -> Result:
        if self._helper is None or not self._helper.usable:
            await self.close()
            try:
                self._helper = await _Helper.start(self.spec)
            except OSError as e:
                return unknown(f"cannot start the SDK helper with {self.param('python')}: {e.strerror}")
        keys = [f"yrnode-probe-{secrets.token_hex(8)}" for _ in range(self.param("keys"))]
        answer = await self._helper.ask({"keys": keys, "size": SIZE})
        if answer is None:
            return unknown("the SDK helper ended; see its log")
        if "error" in answer:
            text = str(answer["error"])
            # the SDK itself is missing or broken: that says nothing about the worker
            return unknown(text) if "No module named" in text or "ImportError" in text else fail(f"KV: {text}")
        failed = answer["failed"]
        if failed:
            first = next(iter(failed.values()))
            return fail(f"KV: {len(failed)} of {len(keys)} keys failed: {first}")
        return ok(f"KV: set and get of {len(keys)} random keys")

    async def close(self) -> None:
        if self._helper is not None:
            helper, self._helper = self._helper, None
            await helper.close()


class _Helper:
    """The child process. `usable` ends with the first question that was given up: a late answer would be mistaken."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: int, reader: asyncio.StreamReader) -> None:
        self._child = child
        self._stdin = stdin
        self._reader = reader
        self._pipe: asyncio.BaseTransport | None = None
        self.usable = True

    @classmethod
    async def start(cls, spec: CheckSpec) -> _Helper:
        """OSError when it cannot be started."""
        argv = [spec.params["python"], str(HELPER), spec.params["host"], str(spec.params["port"])]
        argv.append(str(int(spec.timeout_s * 800)))
        child, stdin, stdout = _spawn(argv, spec.params["env"], Path(spec.params["log"]))
        helper = cls(child, stdin, asyncio.StreamReader())
        helper._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(helper._reader), stdout
        )
        return helper

    @property
    def pid(self) -> int:
        return self._child.pid

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """None when the helper has ended. Cancel to give up."""
        self.usable = False
        try:
            # far below a pipe's size: never blocks on a live or a hung helper
            os.write(self._stdin, json.dumps(request).encode() + b"\n")
        except OSError:
            return None
        line = await self._reader.readline()
        if not line:
            return None
        self.usable = True
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def close(self) -> None:
        """Kill it: it holds nothing that is worth a farewell."""
        if self._pipe is not None:
            self._pipe.close()
        self._child.kill()
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
