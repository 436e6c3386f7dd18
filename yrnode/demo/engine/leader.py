"""The leader: the process that `vllm serve` starts, and what it does before and after serving."""

from __future__ import annotations

import array
import os
import signal
import socket
import time

from yrnode.demo.engine import core
from yrnode.demo.engine.flags import Options, parse
from yrnode.demo.engine.link import Link
from yrnode.demo.engine.processes import end_all, spawn
from yrnode.demo.engine.shm import Residue
from yrnode.demo.engine.titles import log, set_comm, set_prefix, set_title, write

START_FAILED = "Engine core initialization failed. See root cause above. Failed core proc(s): {}"


class StartError(RuntimeError):
    """The engine did not come up; exit code 1."""


class Leader:
    """Process tree of one `vllm serve`: engines, their links, and their end."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.http: socket.socket | None = None
        self.engines: dict[int, int] = {}  # rank -> pid of its EngineCore
        self.helpers: list[int] = []
        self.fronts: dict[int, Link] = {}
        self.door: socket.socket | None = None
        self.residue: Residue | None = None

    def bind(self) -> None:
        """Take the HTTP port, without listening: nobody is answered before the engine is ready."""
        host, port = self.options.host, self.options.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.http = socket.socket(family, socket.SOCK_STREAM)
        self.http.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.http.bind((host, port))

    def start(self) -> None:
        """Start the engines and wait until all are ready. StartError when one is not to come."""
        options = self.options
        self.residue = Residue(len(options.local_ranks))
        hub, listener = (options.dp_address, options.dp_rpc_port), None
        if options.dp > 1 and 0 in options.local_ranks:
            alone = len(options.local_ranks) == options.dp
            listener = socket.create_server(("127.0.0.1", 0) if alone else hub)
            hub = listener.getsockname()[:2] if alone else hub
            self.helpers.append(spawn(coordinator, close=self._sockets([listener])))
            log("INFO", f"Started DP Coordinator process (PID: {self.helpers[0]})")
        door = None
        if options.remote_fronts:
            self.door, door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pairs = {rank: None if options.headless else Link.pair() for rank in options.local_ranks}
        for rank, pair in pairs.items():
            own = [listener, door] if rank == 0 else []
            shared = [listener, door, *(s for p in pairs.values() if p for s in p)]
            keep = [*own, pair[1] if pair else None]
            self.engines[rank] = spawn(
                core.run, options, rank, Link(pair[1]) if pair else None, hub, *(own or [None, None]), self.residue,
                close=self._sockets([s for s in shared if s is not None and s not in keep]),
            )  # fmt: skip
        for sock in [listener, door, *(p[1] for p in pairs.values() if p)]:
            if sock is not None:
                sock.close()
        self.fronts = {rank: Link(pair[0]) for rank, pair in pairs.items() if pair}

    def _sockets(self, others: list[socket.socket]) -> list[socket.socket]:
        """What a child must not keep: an orphan that holds the HTTP port would block the next start."""
        own = [s for s in (self.http, self.door) if s is not None]
        return own + others

    def wait_ready(self) -> None:
        """Wait, without a deadline, for every engine of this front end."""
        for _ in range(self.options.remote_fronts):
            if self.door is None:
                break
            self._admit(self.door)
        for link in self.fronts.values():
            while (message := link.recv()) is not None and message["op"] != "ready":
                pass
            if message is None:
                raise StartError(START_FAILED)

    def _admit(self, door: socket.socket) -> None:
        """Take over the connection of one headless engine."""
        data, ancillary, _, _ = door.recvmsg(16, socket.CMSG_SPACE(4))
        if not data:
            raise StartError(START_FAILED)
        fds = array.array("i")
        fds.frombytes(ancillary[0][2])
        self.fronts[int(data)] = Link(socket.socket(fileno=fds[0]))

    def stop(self) -> None:
        """End the tree and remove what a clean end removes. EngineCore gets no grace, as in vLLM 0.32."""
        end_all(self.engines.values(), signal.SIGKILL, 5.0)
        end_all(self.helpers, signal.SIGTERM, 1.0)
        self.engines, self.helpers = {}, []
        if self.residue:
            self.residue.remove()


def coordinator() -> int:
    """The process that wakes idle ranks in vLLM. Here the ranks do that themselves; it only is there."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    set_title("VLLM::DPCoordinator")
    while True:
        signal.pause()


def fail(error: BaseException) -> int:
    write(f"Traceback (most recent call last):\n{type(error).__name__}: {error}\n")
    return 1


def main(argv: list[str]) -> int:
    """Run one `vllm serve`; returns its exit code: 0 also after a crash of the engine, as vLLM's."""
    options = parse(argv)
    set_comm("vllm")
    set_prefix("MainProcess" if options.headless else "APIServer")
    time.sleep(options.import_time)  # until here TERM ends it at once; from here to ready it is lost
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log("INFO", f"vLLM API server version 0.32.0 (stand-in), model {options.model}")
    leader = Leader(options)
    try:
        if not options.headless:
            leader.bind()
        if options.model.startswith("/") and not os.path.exists(options.model):
            raise ValueError(f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{options.model}'. "
                             "Use `repo_type` argument if needed.")  # fmt: skip
        leader.start()
        if options.headless:
            return serve_headless(leader)
        from yrnode.demo.engine.api import serve  # while the engines load

        leader.wait_ready()
        serve(leader)
    except (OSError, ValueError, StartError) as error:
        return fail(error)
    finally:
        leader.stop()
    return 0


def serve_headless(leader: Leader) -> int:
    """No HTTP: end with the first engine that ends, or on TERM, always with code 0.

    The death of the head goes unnoticed.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    log("INFO", f"Launching {len(leader.engines)} data parallel engine(s) in headless mode")
    try:
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid in leader.engines.values():
                if os.waitstatus_to_exitcode(status) != core.START_FAILED:
                    time.sleep(leader.options.death_linger)
                break
    except KeyboardInterrupt:
        pass
    log("INFO", "Shutting down.")
    return 0
