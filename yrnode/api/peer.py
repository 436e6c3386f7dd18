"""Who is at the other end of a Unix socket, by the kernel's word."""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from yrnode.model.cover import short
from yrnode.process import table
from yrnode.telemetry.log import one_line

LONGEST_COMMAND = 80
LOOK_UP_S = 1.0
"""User names may come from a directory server that does not answer."""
_NO_LOGIN = 2**32 - 1


@dataclass(frozen=True)
class Peer:
    """The process that connected; pid 0 where it is of another pid namespace."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"uid {self.uid}, pid {self.pid}"

    async def described(self) -> str:
        """`root (uid 0, pid 71: yrnode stop worker)`, with who had logged in where that was another user."""
        try:
            user, command = await asyncio.wait_for(asyncio.to_thread(self._look_up), LOOK_UP_S)
        except asyncio.TimeoutError:
            user = command = ""
        ids = f"{self}: {command}" if command else str(self)
        return f"{user} ({ids})" if user else ids

    def _look_up(self) -> tuple[str, str]:
        user = _name(self.uid)
        login = _login(self.pid)
        if login is not None and login != self.uid:
            user += f", logged in as {_name(login) or login}"
        return user, _command(self.pid)


def peer(request: web.Request) -> Peer:
    """ConnectionError where it has gone already."""
    if request.transport is None:
        raise ConnectionResetError("the client has gone")
    raw: socket.socket = request.transport.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _login(pid: int) -> int | None:
    """The uid that logged in, which sudo does not change; None where nobody did, or it cannot be read."""
    try:
        found = int(Path(f"/proc/{pid}/loginuid").read_text())
    except (OSError, ValueError):
        return None
    return None if found == _NO_LOGIN else found


def _command(pid: int) -> str:
    try:
        argv = table.argv(pid)
        if len(argv) > 1 and os.path.basename(argv[0]).startswith("python") and not argv[1].startswith("-"):
            # a script says more than what runs it
            argv = [os.path.basename(argv[1]), *argv[2:]]
        text = one_line(shlex.join(argv))
    except (OSError, ValueError):
        return "gone"
    return short(text, LONGEST_COMMAND)
