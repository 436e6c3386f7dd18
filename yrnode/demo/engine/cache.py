"""External KV cache: the real datasystem client, with the manners of the yuanrong backend.

Only the constructor may fail. Later every error is logged and swallowed: unknown, not got, not put.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
from typing import Any

from yrnode.demo.engine.flags import Options
from yrnode.demo.engine.titles import log

BATCH = 512  # keys in one call; the client takes fewer than 2000
LOST = -1  # instead of a count: a load that neither ends nor fails


def wanted(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """The AscendStore part of a `--kv-transfer-config` whose backend is yuanrong, at any depth; else None."""
    if not config:
        return None
    extra = config.get("kv_connector_extra_config") or {}
    if config.get("kv_connector") == "AscendStoreConnector" and extra.get("backend") == "yuanrong":
        return config
    return next((c for sub in extra.get("connectors") or [] if (c := wanted(sub))), None)


class ExternalCache:
    """One Worker's client. RuntimeError or ValueError when the datasystem worker cannot be reached at start."""

    def __init__(self, options: Options, tp_rank: int) -> None:
        settings = self._settings()
        name = re.sub(r"[^A-Za-z0-9_-]", "-", options.model.rstrip("/").rsplit("/", 1)[-1])
        self._prefix = f"{name}@block{options.block_size}@tp{{}}of{options.tp}@"
        self._tp, self._tp_rank = options.tp, tp_rank
        self._value = os.urandom(options.block_bytes)
        host, _, port = settings["worker_addr"].rpartition(":")
        from yr.datasystem import KVClient

        connect = int(settings.get("connect_timeout_ms", 9000))
        request = int(settings.get("request_timeout_ms", 0))
        self._client = KVClient(host, int(port), connect_timeout_ms=connect, req_timeout_ms=request)
        self._client.init()
        self.lost = False
        self._keep_read = options.keep_read
        self._read: list[Any] = []
        """Buffers in the datasystem's own memory: while they are kept, this process maps it."""
        self._puts: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        threading.Thread(target=self._put_all, daemon=True).start()

    @staticmethod
    def _settings() -> dict[str, Any]:
        path, address = os.environ.get("YR_CONFIG_PATH"), os.environ.get("DS_WORKER_ADDR")
        if path:
            with open(path, encoding="utf-8") as f:
                settings: dict[str, Any] = json.load(f)
            if not settings.get("worker_addr"):
                raise ValueError(f"worker_addr is missing in {path}")
            return settings
        if address:
            return {"worker_addr": address}
        raise ValueError("neither YR_CONFIG_PATH nor DS_WORKER_ADDR is set")

    def _key(self, block: str, tp_rank: int) -> str:
        return self._prefix.format(tp_rank) + block

    def exists(self, blocks: list[str]) -> int:
        """How many leading blocks are there for all tensor-parallel ranks; 0 on any error."""
        for at in range(0, len(blocks), BATCH):
            part = blocks[at : at + BATCH]
            keys = [self._key(b, r) for b in part for r in range(self._tp)]
            try:
                found = self._client.exist(keys)
            except Exception as error:
                kind = type(error).__name__
                log("ERROR", f"Failed to check keys. keys_count={len(keys)}, type={kind}, error={error}. "
                    "Check network and yuanrong service.")  # fmt: skip
                return 0
            if not all(found):
                return at + int(found.index(False)) // self._tp
        return len(blocks)

    def get(self, blocks: list[str]) -> int:
        """How many leading blocks could be read; what follows must be computed again. LOST: they never come."""
        if self.lost:
            return LOST
        for at in range(0, len(blocks), BATCH):
            keys = [self._key(b, self._tp_rank) for b in blocks[at : at + BATCH]]
            try:
                values = self._client.get(keys)
                if self._keep_read:
                    self._read = self._client.get_read_only_buffers(keys)
            except Exception as error:
                log("ERROR", f"Failed to get {len(keys)} keys out of {len(keys)}. type={type(error).__name__}, "
                    f"error={error}. Check network and yuanrong service.")  # fmt: skip
                return at
            missing = [n for n, value in enumerate(values) if value is None]
            if missing:
                log("ERROR", f"Failed to get {len(missing)} keys out of {len(keys)}. "
                    "Check key existence and memory state.")  # fmt: skip
                return at + missing[0]
        return len(blocks)

    def put(self, blocks: list[str]) -> None:
        """Store blocks in the background."""
        self._puts.put(blocks)

    def _put_all(self) -> None:
        while True:
            blocks = self._puts.get()
            for at in range(0, len(blocks), BATCH):
                keys = [self._key(b, self._tp_rank) for b in blocks[at : at + BATCH]]
                try:
                    failed = self._client.mset(keys, [self._value] * len(keys))
                    if failed:
                        log("ERROR", f"Failed to put {len(failed)} keys out of {len(keys)}. "
                            "Check network and yuanrong service.")  # fmt: skip
                except Exception as error:
                    log("ERROR", f"Failed to put {len(keys)} keys out of {len(keys)}. "
                        f"type={type(error).__name__}, error={error}. "
                        "Check network and yuanrong service.")  # fmt: skip
