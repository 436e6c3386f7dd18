"""A data-parallel group: how its ranks meet at the rpc port, and the collective of every step.

Rank 0 is the hub. A peer's death is noticed only in a step: an idle group does not look.
"""

from __future__ import annotations

import select
import socket
import time

from yrnode.demo.engine.flags import Options
from yrnode.demo.engine.link import Link, Message
from yrnode.demo.engine.titles import log

RUN_ON = 32  # ranks agree that all work is done only in every so many steps; till then a death is seen at once
HELLO_PATIENCE = 5.0  # seconds for a caller to say who it is


class GroupError(RuntimeError):
    """A peer is gone or too late; the engine cannot go on."""


class Group:
    """This rank's seat in the group. `links` are the other ranks (hub) or the hub alone."""

    def __init__(self, options: Options, links: list[Link], hub: bool) -> None:
        self.links, self.hub = links, hub
        self.timeout = options.collective_timeout
        self.in_wave = False
        self._steps = 0

    def start(self) -> None:
        """All ranks have loaded: ready is a barrier. GroupError when a peer did not live so long."""
        if self.hub:
            for link in self.links:
                self._expect(link, "ready")
            self._broadcast({"op": "go"})
        else:
            self.links[0].send({"op": "ready"})
            self._expect(self.links[0], "go")

    def idle_sockets(self) -> list[Link]:
        """What an idle rank listens to. Dead peers are left out: nobody looks at them before the next step."""
        return [link for link in self.links if not link.closed]

    def hear(self, link: Link) -> None:
        """Read one message of an idle group: a call to work, or a death that is noted and not acted upon."""
        message = link.recv()
        if message is not None and message["op"] == "wake":
            self.wake(link)

    def wake(self, caller: Link | None = None) -> None:
        """Begin a wave: every rank steps until no rank has work."""
        if self.in_wave:
            return
        self.in_wave = True
        for link in self.links:
            if link is not caller:
                link.send({"op": "wake"})

    def barrier(self, busy: bool) -> None:
        """End of a step on all ranks. Leaves the wave some steps after no rank is busy.

        GroupError when a peer is gone.
        """
        if self.hub:
            for link in self.links:
                busy = bool(self._expect(link, "step")["busy"]) or busy
            self._steps += 1
            busy = busy or self._steps % RUN_ON != 0
            self._broadcast({"op": "over", "busy": busy})
        else:
            self.links[0].send({"op": "step", "busy": busy})
            busy = bool(self._expect(self.links[0], "over")["busy"])
        self.in_wave = busy

    def _broadcast(self, message: Message) -> None:
        for link in self.links:
            link.send(message)

    def _expect(self, link: Link, op: str) -> Message:
        end = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            try:
                message = link.recv(None if end is None else max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise GroupError(f"[gloo] Timed out waiting {self.timeout:g}s for recv operation") from None
            if message is None:
                raise GroupError("[gloo] Connection closed by peer")
            if message["op"] == op:
                return message


def signature(options: Options) -> list[int]:
    """What all ranks must have in common."""
    return [options.dp, options.tp, int(options.expert_parallel)]


def host_group(options: Options, listener: socket.socket, door: socket.socket | None) -> Group:
    """Rank 0: wait, without a limit and without a word, until all ranks have come; then close the port.

    Headless engines bring a second connection, which goes through `door` to the leader.
    """
    peers: dict[int, Link] = {}
    fronts = options.remote_fronts
    log("DEBUG", f"Waiting for {options.dp - 1} remote core engine proc(s) to connect.")
    while len(peers) < options.dp - 1 or fronts:
        sock = listener.accept()[0]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(sock)
        try:
            hello = link.recv(HELLO_PATIENCE)
        except (TimeoutError, ValueError):
            hello = None
        if not isinstance(hello, dict) or "rank" not in hello:
            link.close()
            continue
        rank = int(hello["rank"])
        if hello["signature"] != signature(options):
            raise GroupError(f"Configuration mismatch detected for engine {rank}.")
        link.send({"op": "init"})
        if hello["role"] == "front" and door is not None:
            socket.send_fds(door, [b"%d" % rank], [link.fileno()])
            link.close()
            fronts -= 1
        elif rank in peers or not 0 < rank < options.dp:
            raise GroupError(f"Unexpected HELLO message for engine {rank}.")
        else:
            peers[rank] = link
    listener.close()
    if door is not None:
        door.close()
    for link in peers.values():
        link.send({"op": "formed"})
    return Group(options, list(peers.values()), hub=True)


def join_group(options: Options, address: tuple[str, int], rank: int) -> Group:
    """Rank above 0: come to rank 0's port. GroupError when nobody answers in time."""
    link = call(options, address, rank, "peer")
    if link.recv() is None:
        raise GroupError("[gloo] Connection closed by peer")
    return Group(options, [link], hub=False)


def call(options: Options, address: tuple[str, int], rank: int, role: str) -> Link:
    """Say hello at rank 0's port until it answers. GroupError after the handshake timeout."""
    end = time.monotonic() + options.handshake_timeout
    while (left := end - time.monotonic()) > 0:
        try:
            sock = socket.create_connection(address, timeout=left)
        except OSError:
            select.select([], [], [], min(0.05, left))
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(sock)
        link.send({"role": role, "rank": rank, "signature": signature(options)})
        try:
            if link.recv(max(0.0, end - time.monotonic())) is not None:
                return link
        except TimeoutError:
            pass
        link.close()
    raise GroupError("Did not receive response from front-end process within 5 minutes")
