"""Structured records for systemd's journal: through systemd-python where it is, else the native protocol itself.

The protocol is one datagram a record: `NAME=value` lines, and for a value with a line break the name, a line break,
the length as 64 bits little-endian, and the value.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

SOCKET = "/run/systemd/journal/socket"


class Journal:
    """Sends records without ever waiting. One that is away or does not read costs nothing but its records."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        # it knows one place only
        self._sendv = _systemd_python() if path == SOCKET else None

    def send(self, fields: Mapping[str, str]) -> bool:
        """Whether the journal has taken the record. Names are capital letters, digits and underscores."""
        try:
            s = self._connected()
            if self._sendv is None:
                s.send(encode(fields))
                return True
            # libsystemd waits for a journal that does not read: ask first
            if not _writable(s):
                raise BlockingIOError
            self._sendv(*(f"{name}={value}".encode("utf-8", "backslashreplace") for name, value in fields.items()))
        except OSError:
            self.close()
            return False
        return True

    def _connected(self) -> socket.socket:
        """Connected anew after a failure: the journal's restart makes a new socket."""
        if self._socket is None:
            s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                s.connect(self._path)
            except OSError:
                s.close()
                raise
            self._socket = s
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


def encode(fields: Mapping[str, str]) -> bytes:
    """One record in the native protocol."""
    parts = []
    for name, text in fields.items():
        value = text.encode("utf-8", "backslashreplace")
        if b"\n" in value:
            parts += [name.encode(), b"\n", len(value).to_bytes(8, "little"), value, b"\n"]
        else:
            parts += [name.encode(), b"=", value, b"\n"]
    return b"".join(parts)


def _writable(s: socket.socket) -> bool:
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    return poll.poll(0) == [(s.fileno(), select.POLLOUT)]


@lru_cache(maxsize=1)
def _systemd_python() -> Callable[..., Any] | None:
    try:
        from systemd.journal import sendv
    except (ImportError, OSError):
        return None
    found: Callable[..., Any] = sendv
    return found
