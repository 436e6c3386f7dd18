"""Whether a port is free, and whose it is when not."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import time
from collections.abc import Collection

import psutil

from yrnode.process import table

UNSEEN = "a process that cannot be seen from here"
ENDING_S = 5.0
_ANY = ("0.0.0.0", "::")  # noqa: S104  compared with, never bound


def why_taken(host: str, port: int) -> str:
    """Empty when the port can be bound; else who listens there, or why it cannot be bound."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as s:
        # as servers do: connections in TIME_WAIT do not count
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
            s.listen(1)
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                return f"in use by {holder(host, port)}"
            return e.strerror or str(e)
    return ""


async def taken(host: str, port: int) -> str:
    """`why_taken`, with a while for a holder that nobody sees: a process that is ending still has its sockets."""
    deadline = time.monotonic() + ENDING_S
    while True:
        why = await asyncio.to_thread(why_taken, host, port)
        if not why.endswith(UNSEEN) or time.monotonic() >= deadline:
            return why
        await asyncio.sleep(0.1)


def listener(host: str, port: int) -> int | None:
    """The pid of a process that listens on this address and port, or on all addresses, where /proc tells."""
    try:
        for c in psutil.net_connections("tcp"):
            # several nodes of one host have the same ports, each on an address of its own
            here = c.laddr and c.laddr.port == port and (host in _ANY or c.laddr.ip in (host, *_ANY))
            if here and c.status == psutil.CONN_LISTEN and c.pid:
                return int(c.pid)
    except psutil.Error:
        pass
    return None


def holder(host: str, port: int) -> str:
    """Who listens there, for people."""
    pid = listener(host, port)
    if pid is None:
        return UNSEEN
    return f"pid {pid} ({table.command(pid) or 'unknown command'})"


def free_port(host: str, claimed: Collection[int] = ()) -> int:
    """A port that can be bound now, not `claimed`, and not one that the kernel gives to clients. OSError if none."""
    low, high = ephemeral_range()
    candidates = [p for p in range(15000, 65000) if not low <= p <= high and p not in claimed]
    for port in random.sample(candidates, min(200, len(candidates))):
        if not why_taken(host, port):
            return port
    raise OSError(errno.EADDRNOTAVAIL, f"no free port on {host}")


def ephemeral_range() -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
            low, high = f.read().split()
    except OSError:
        return 32768, 60999
    return int(low), int(high)
