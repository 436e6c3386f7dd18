"""One Worker: a tensor-parallel rank's computing, which here is sleep, and its external cache."""

from __future__ import annotations

import signal
import time

from yrnode.demo.engine.cache import ExternalCache, wanted
from yrnode.demo.engine.flags import Options
from yrnode.demo.engine.link import Link
from yrnode.demo.engine.titles import log, set_prefix, set_title


def compute(seconds: float) -> None:
    """Be busy as a prefill is: some CPU time in every slice, but not a whole core of the machine under test."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        spin = time.monotonic() + min(left, 0.002)
        while time.monotonic() < spin:
            pass
        time.sleep(max(0.0, min(end - time.monotonic(), 0.008)))


class Worker:
    """Serves its EngineCore until that is gone. It ignores TERM: the EngineCore decides."""

    def __init__(self, options: Options, rank: int, tp_rank: int, link: Link) -> None:
        self.options, self.link = options, link
        title = options.worker_title(rank, tp_rank)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        set_title(f"VLLM::{title}")
        set_prefix(title)
        self.cache = ExternalCache(options, tp_rank) if wanted(options.kv_transfer) else None
        if self.cache:
            signal.signal(signal.SIGUSR2, self._lose)
        time.sleep(options.load_time)

    def _lose(self, *_: object) -> None:
        """SIGUSR2: the link to the external cache is dead; the next SIGUSR2 brings it back."""
        if self.cache:
            self.cache.lost = not self.cache.lost

    def run(self) -> None:
        self.link.send({"op": "ready"})
        while (message := self.link.recv()) is not None:
            op = message["op"]
            if op == "step":
                if message["prefill"]:
                    compute(message["prefill"] / self.options.prefill_rate)
                time.sleep(self.options.token_time)
                self.link.send({"op": "done"})
            elif op == "save" and self.cache:
                self.cache.put(message["blocks"])
            elif op in ("exists", "get"):
                blocks = message["blocks"]
                count = 0
                if self.cache:
                    count = self.cache.exists(blocks) if op == "exists" else self.cache.get(blocks)
                self.link.send({"op": "count", "count": count})


def run(options: Options, rank: int, tp_rank: int, link: Link) -> int:
    """A Worker's whole life; returns its exit code."""
    try:
        worker = Worker(options, rank, tp_rank, link)
    except Exception as error:
        log("ERROR", f"WorkerProc failed to start.\n{type(error).__name__}: {error}")
        return 1
    worker.run()
    return 0
