"""Set on one worker, get on another, through the datasystem's SDK: a program of its own, for the Python that has it.

usage: python kv_pair_helper.py SET_HOST:PORT GET_HOST:PORT TIMEOUT_MS TTL_S
First a line `{"hello": true}` when the SDK is loaded. Then one JSON request a line on stdin and one JSON answer a
line on stdout: `{"connect": true}`; `{"set": KEY, "size": N}`, answered by `{"s": SECONDS, "digest": …}`; `{"get":
KEY}` by the same, the digest null where the key was not found; `{"delete": [KEY, …]}` by `{"left": N}`. What goes
wrong is `{"error": …}`. When stdin ends, what it has set and not deleted is deleted. It stands alone, and
one process makes one call at a time: the SDK holds the interpreter's lock meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from typing import Any

NOT_FOUND = "[Key not found]"


class Pair:
    """A client of each worker, or one where both are the same. `kept`: what was set and not deleted."""

    def __init__(self, setter: str, getter: str, timeout_ms: int, ttl_s: int) -> None:
        self._addresses, self._timeout_ms, self._ttl_s = (setter, getter), timeout_ms, ttl_s
        self._clients: list[Any] = []
        self.kept: set[str] = set()

    def connect(self) -> dict[str, Any]:
        from yr.datasystem import KVClient

        clients: dict[str, Any] = {}
        for address in self._addresses:
            if address not in clients:
                host, _, port = address.rpartition(":")
                clients[address] = KVClient(
                    host, int(port), connect_timeout_ms=self._timeout_ms, req_timeout_ms=self._timeout_ms
                )
                clients[address].init()
        self._clients = [clients[address] for address in self._addresses]
        return {}

    def set(self, key: str, size: int) -> dict[str, Any]:
        value = os.urandom(size)
        self.kept.add(key)
        began = time.perf_counter()
        self._clients[0].set(key, value, ttl_second=self._ttl_s)
        return {"s": time.perf_counter() - began, "digest": _digest(value)}

    def get(self, key: str) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            value = self._clients[1].get([key])[0]
        except RuntimeError as e:
            if NOT_FOUND not in str(e):
                raise
            value = None
        took = time.perf_counter() - began
        return {"s": took, "digest": None if value is None else _digest(value)}

    def delete(self, keys: list[str]) -> dict[str, Any]:
        left = self._clients[0].delete(keys) if keys else []
        self.kept.difference_update(set(keys).difference(left))
        return {"left": len(left)}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if "connect" in request:
                return self.connect()
            if "set" in request:
                return self.set(request["set"], request["size"])
            return self.get(request["get"]) if "get" in request else self.delete(request["delete"])
        except Exception as e:
            return {"error": short(e)}


def main() -> None:
    # Ctrl-C on the terminal is for whoever started us, and who then asks for the keys to be deleted
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pair = Pair(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    # the SDK may print: keep its words away from the answers
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        import yr.datasystem  # noqa: F401
    except Exception as e:
        answers.write(json.dumps({"hello": False, "error": short(e)}) + "\n")
        return
    try:
        answers.write(json.dumps({"hello": True}) + "\n")
        for line in sys.stdin:
            answers.write(json.dumps(pair.answer(json.loads(line))) + "\n")
    except OSError:
        pass  # nobody reads: our parent is gone
    if pair.kept:
        pair.answer({"delete": sorted(pair.kept)})
    # the SDK's farewell waits for ever for a worker that is dead
    sys.stdout.flush()
    os._exit(0)


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def short(e: Exception) -> str:
    return " ".join(str(e).split())[:300]


if __name__ == "__main__":
    main()
