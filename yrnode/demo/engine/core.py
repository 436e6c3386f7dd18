"""EngineCore: one data-parallel rank's loop between its front end, its Workers and its group.

It never watches its front end: when the API server is killed it lives on, and goes on serving its group.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
import traceback
from typing import Any

from yrnode.demo.engine import worker as worker_module
from yrnode.demo.engine.cache import wanted
from yrnode.demo.engine.flags import Options
from yrnode.demo.engine.group import Group, call, host_group, join_group
from yrnode.demo.engine.link import Link
from yrnode.demo.engine.processes import spawn
from yrnode.demo.engine.scheduler import Scheduler
from yrnode.demo.engine.shm import Residue
from yrnode.demo.engine.titles import log, set_prefix, set_title

EXECUTE_TIMEOUT = float(os.environ.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "300"))

START_FAILED, CRASHED = 1, 2  # exit codes


class Core:
    """Runs until a Worker or the group fails (an exception), or TERM asks it to end (SystemExit)."""

    def __init__(self, options: Options, rank: int, front: Link | None, residue: Residue) -> None:
        self.options, self.rank, self.residue = options, rank, residue
        self.front = front
        self.group: Group | None = None
        self.workers: list[Link] = []
        self.spinning = False

    def load(self, hub: tuple[str, int], listener: socket.socket | None, door: socket.socket | None) -> None:
        """Meet the group, start the Workers, wait for them and for all other ranks."""
        options = self.options
        log("INFO", f"Initializing a V1 LLM engine (stand-in) with config: model='{options.model}'")
        if options.num_blocks * options.block_size < options.max_model_len:
            raise ValueError(f"To serve at least one request with the model's max seq len ({options.max_model_len}), "
                             f"more KV cache is needed than {options.num_blocks} blocks")  # fmt: skip
        if options.dp > 1:
            if listener is not None:
                self.group = host_group(options, listener, door)
            else:
                if self.front is None:
                    self.front = call(options, hub, self.rank, "front")
                self.group = join_group(options, hub, self.rank)
        for tp_rank in range(options.tp):
            mine, its = Link.pair()
            inherited = [link.sock for link in self.workers] + [mine]
            inherited += [self.front.sock] if self.front else []
            inherited += [link.sock for link in self.group.links] if self.group else []
            spawn(worker_module.run, options, self.rank, tp_rank, Link(its), close=inherited)
            its.close()
            self.workers.append(Link(mine))
        for link in self.workers:
            if link.recv() is None:
                raise RuntimeError(
                    "WorkerProc initialization failed due to an exception in a background process. "
                    "See stack trace for root cause."
                )
        if self.group:
            self.group.start()
            if options.dense:
                self.group = None
        external = wanted(options.kv_transfer) is not None
        self.scheduler = Scheduler(
            options,
            external_exists=self._exists if external else None,
            external_get=self._get if external else None,
        )
        signal.signal(signal.SIGUSR2, self._spin)
        signal.signal(signal.SIGALRM, self._quit)
        signal.signal(signal.SIGTERM, self._term)
        self._publish([])
        if self.front:
            self.front.send({"op": "ready", "rank": self.rank})

    # signals

    def _spin(self, *_: Any) -> None:
        """SIGUSR2: burn CPU without any progress; the next SIGUSR2 ends it."""
        self.spinning = not self.spinning
        while self.spinning:
            pass

    def _term(self, *_: Any) -> None:
        """The end, at the latest after `--shutdown-timeout`; a leader that drains ends it earlier."""
        if self.options.shutdown_timeout <= 0 or self.front is None or self.front.closed:
            self._quit()
        signal.setitimer(signal.ITIMER_REAL, self.options.shutdown_timeout)

    def _quit(self, *_: Any) -> None:
        self.residue.remove()
        os._exit(0)

    # the loop

    def run(self) -> None:
        while True:
            in_wave = self.group is not None and self.group.in_wave
            self._listen(block=not self.scheduler.has_work() and not in_wave)
            has_work = self.scheduler.has_work()
            if self.group is not None:
                if has_work:
                    self.group.wake()
                if self.group.in_wave:
                    self._step()
            elif has_work:
                self._step()

    def _listen(self, block: bool) -> None:
        """Take what the front end, the Workers and the group have to say; with `block`, wait for it."""
        idle_group = self.group.idle_sockets() if self.group and not self.group.in_wave else []
        links = [*self.workers, *idle_group]
        if self.front and not self.front.closed:
            links.append(self.front)
        said = [link for link in links if link.buffered()]
        for link in said or select.select(links, [], [], None if block else 0)[0]:
            if link is self.front:
                self._hear_front()
            elif link in self.workers:
                if link.recv() is None:
                    raise RuntimeError("Worker proc died unexpectedly, shutting down executor.")
            elif self.group:
                self.group.hear(link)

    def _hear_front(self) -> None:
        message = self.front.recv() if self.front else None
        if message is None:
            return
        if message["op"] == "add":
            self.scheduler.add(message)
        elif message["op"] == "wake" and self.group:
            self.group.wake()
        elif message["op"] == "abort":
            self.scheduler.abort(message["id"])
            self._publish([])

    def _step(self) -> None:
        """One step on all Workers and, with the group, on all ranks: idle ranks compute a dummy batch."""
        admits = bool(self.scheduler.waiting)
        step = self.scheduler.schedule()
        tokens = sum(count for _, count in step)
        self._ask({"op": "step", "prefill": max(0, tokens - len(step)), "tokens": tokens}, "done")
        outputs = self.scheduler.finish_step(step)
        if self.scheduler.to_save:
            if self._saves():
                for link in self.workers:
                    link.send({"op": "save", "blocks": self.scheduler.to_save})
            self.scheduler.to_save = []
        if self.group:
            self.group.barrier(self.scheduler.has_work())
        if step or outputs or admits:
            self._publish([[request.id, text, reason] for request, text, reason in outputs])

    def _publish(self, outputs: list[list[str | None]]) -> None:
        if self.front:
            self.front.send({"op": "out", "outs": outputs, "stats": self.scheduler.stats()})

    # the Workers

    def _ask(self, message: dict[str, Any], answer: str) -> list[dict[str, Any]]:
        """Send to all Workers and wait for all; RuntimeError when one is gone or out of time."""
        end = time.monotonic() + EXECUTE_TIMEOUT
        for link in self.workers:
            link.send(message)
        answers = []
        for link in self.workers:
            try:
                reply = link.recv(max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise RuntimeError(f"RPC call to {message['op']} timed out.") from None
            if reply is None or reply["op"] != answer:
                raise RuntimeError("Worker proc died unexpectedly, shutting down executor.")
            answers.append(reply)
        return answers

    def _exists(self, blocks: list[str]) -> int:
        """The first Worker answers for all; the scheduler waits for it, however long the datasystem takes."""
        self.workers[0].send({"op": "exists", "blocks": blocks})
        reply = self.workers[0].recv()
        return int(reply["count"]) if reply else 0

    def _get(self, blocks: list[str]) -> int:
        return min(int(reply["count"]) for reply in self._ask({"op": "get", "blocks": blocks}, "count"))

    def _saves(self) -> bool:
        connector = wanted(self.options.kv_transfer)
        return connector is not None and connector.get("kv_role") != "kv_consumer"


def run(
    options: Options,
    rank: int,
    front: Link | None,
    hub: tuple[str, int],
    listener: socket.socket | None,
    door: socket.socket | None,
    residue: Residue,
) -> int:
    """An EngineCore's whole life; returns its exit code. A crash after the start looks like one to the front end."""
    title = options.engine_title(rank)
    set_title(f"VLLM::{title}")
    set_prefix(title)
    core = Core(options, rank, front, residue)
    try:
        core.load(hub, listener, door)
    except Exception as error:
        log("ERROR", f"EngineCore failed to start.\n{type(error).__name__}: {error}")
        return START_FAILED
    try:
        core.run()
    except Exception:
        log("ERROR", "EngineCore encountered a fatal error.\n" + traceback.format_exc())
    return CRASHED
