"""Set and get through the datasystem's SDK: a program of its own, run by the Python that has the SDK.

usage: python kv_helper.py HOST PORT TIMEOUT_MS
First a line `{"hello": true}` when the SDK is loaded. Then one JSON request a line on stdin, `{"keys": [...], "size":
N}`, and one JSON answer a line on stdout, `{"failed": {KEY: ERROR}, "error": ERROR}`, `error` where no key could even
be tried. Ends when stdin does. It stands alone: the SDK's
calls block, its threads are C++, and its Python need not be yrnode's.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    host, port, timeout_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # the SDK may print: keep its words away from the answers
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        import yr.datasystem  # noqa: F401
    except Exception as e:
        answers.write(json.dumps({"hello": False, "error": short(e)}) + "\n")
        return
    answers.write(json.dumps({"hello": True}) + "\n")
    client: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"failed": {}}
        try:
            if client is None:
                client = connect(host, port, timeout_ms)
            for key in request["keys"]:
                problem = try_key(client, key, os.urandom(request["size"]))
                if problem:
                    answer["failed"][key] = problem
        except Exception as e:
            answer["error"] = short(e)
        answers.write(json.dumps(answer) + "\n")
    # the SDK's farewell waits for ever for a worker that is dead, and keeps the dead one's memory meanwhile
    sys.stdout.flush()
    os._exit(0)


def connect(host: str, port: int, timeout_ms: int) -> Any:
    from yr.datasystem import KVClient

    client = KVClient(host, port, connect_timeout_ms=timeout_ms, req_timeout_ms=timeout_ms)
    client.init()
    return client


def try_key(client: Any, key: str, value: bytes) -> str | None:
    """None, or what went wrong with this one key."""
    try:
        client.set(key, value, ttl_second=30)
        back = client.get([key])[0]
        client.delete([key])
    except RuntimeError as e:
        return short(e)
    return None if back is not None and bytes(back) == value else "get returned something else than was set"


def short(e: Exception) -> str:
    return " ".join(str(e).split())[:300]


if __name__ == "__main__":
    main()
