"""A link: JSON messages, one a line, over a stream socket between two processes."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

Message = dict[str, Any]


class Link:
    """Blocking end of a link. A dead peer shows as `closed`, never as an exception."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.setblocking(True)
        self.closed = False
        self._buffer = b""

    @staticmethod
    def pair() -> tuple[socket.socket, socket.socket]:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Message) -> None:
        if self.closed:
            return
        try:
            self.sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError:
            self.closed = True

    def buffered(self) -> bool:
        """Whether `recv` would return without reading the socket."""
        return b"\n" in self._buffer

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message; None when the peer is gone. TimeoutError after `timeout` seconds without data."""
        while not self.buffered():
            if self.closed:
                return None
            if timeout is not None and not select.select([self.sock], [], [], timeout)[0]:
                raise TimeoutError
            try:
                data = self.sock.recv(1 << 18)
            except OSError:
                data = b""
            if not data:
                self.closed = True
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        self.closed = True
        self.sock.close()
