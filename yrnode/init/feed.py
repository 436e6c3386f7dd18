"""The receiving end of what the daemon tells systemd elsewhere: READY and WATCHDOG, as of sd_notify(3)."""

from __future__ import annotations

import contextlib
import socket
import struct

_LARGEST = 4096
_MOST = 100
"""Messages that are read at once: a sender that never pauses must not hold us."""
_CREDENTIALS = struct.Struct("3i")


class Feed:
    """A datagram socket in the abstract namespace: it needs no directory, and ends with its process.

    With the host's network any process there can send to it; the kernel's word for the sender's pid tells them apart.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # without a name the kernel chooses one that is free
        self._socket.bind("")

    @property
    def address(self) -> str:
        """For NOTIFY_SOCKET."""
        name: bytes = self._socket.getsockname()
        return "@" + name[1:].decode("ascii")

    def heard(self, pid: int) -> set[str]:
        """What process `pid` has said since the last call, such as `{"WATCHDOG=1"}`. Never waits."""
        said: set[str] = set()
        for _ in range(_MOST):
            try:
                data, more, _, _ = self._socket.recvmsg(_LARGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:
                break
            if _sender(more) == pid:
                said.update(data.decode("utf-8", "replace").split("\n"))
        return said

    def close(self) -> None:
        self._socket.close()


def _sender(more: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in more:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            with contextlib.suppress(struct.error):
                return int(_CREDENTIALS.unpack(data)[0])
    return 0
