"""The two listeners: read-only TCP, and the Unix socket that may change things."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from pathlib import Path

from aiohttp import web

from yrnode.api.app import read_app
from yrnode.api.bounds import Listener
from yrnode.api.control import Reload, control_app
from yrnode.api.node import Node
from yrnode.api.refusals import Rarely
from yrnode.model.errors import UsageError
from yrnode.node.pace import pause_s
from yrnode.residue.ports import holder

log = logging.getLogger("yrnode.api")
_unread = logging.getLogger("yrnode.api.unread")
_unread.addFilter(Rarely())

LOOK_S = 1.0
"""From one look after the control socket to the next."""
_IDLE_S = 15.0
_GRACE_S = 0.5


class Api:
    """Serves a node on `host`:`port` (0: any free one) and on the Unix socket `path`, usually run_dir/yrnode.sock.

    `reload`: see `api.reload`."""

    def __init__(self, node: Node, host: str, port: int, path: Path, reload: Reload | None = None) -> None:
        self._node = node
        self._host = host
        self._port = port
        self._path = path
        self._reload = reload
        self._runners: list[web.AppRunner] = []
        self._servers: list[asyncio.base_events.Server] = []
        self._inode: tuple[int, int] | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The TCP port, once started the real one."""
        return self._port

    async def start(self) -> None:
        """Listen on both. UsageError when an address is taken or cannot be had; then nothing is left listening."""
        try:
            unix = _unix_socket(self._path)
            self._inode = _inode(self._path)
            listener = await self._serve(control_app(self._node, self._reload), unix)
            self._keeping = asyncio.create_task(self._keep(listener), name="control socket")
            tcp = _tcp_socket(self._host, self._port)
            self._port = tcp.getsockname()[1]
            await self._serve(read_app(self._node), tcp)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop listening, end open streams within about a second, and remove the socket."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        for server in self._servers:
            server.close()
        self._servers.clear()
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()
        if self._inode is not None:
            _unlink_own(self._path, self._inode)
            self._inode = None

    async def _keep(self, listener: Listener) -> None:
        """Somebody may remove run_dir: nobody could then tell this daemon anything."""
        told = ""
        while True:
            await asyncio.sleep(pause_s(time.monotonic(), LOOK_S))
            try:
                if _inode(self._path) is None:
                    await self._make_anew(listener)
                    log.warning("the control socket %s was gone; it is made anew", self._path)
                told = ""
            except Exception as e:
                # whatever it is, it may be over in a second
                if str(e) != told:
                    log.warning("the control socket is gone and cannot be made anew: %s", e)
                told = str(e)

    async def _make_anew(self, listener: Listener) -> None:
        unix = _unix_socket(self._path)
        inode = _inode(self._path)
        try:
            server = await asyncio.get_running_loop().create_server(listener.accept, sock=unix)
        except BaseException:
            unix.close()
            # the next look would else take it for one that answers
            if inode is not None:
                _unlink_own(self._path, inode)
            raise
        # the first server is the control socket's
        self._servers[0].close()
        self._servers[0], self._inode = server, inode

    async def _serve(self, app: web.Application, sock: socket.socket) -> Listener:
        # an idle or slow client is cut off
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_unread,
            keepalive_timeout=_IDLE_S,
            lingering_time=1.0,
            shutdown_timeout=_GRACE_S,
        )
        self._runners.append(runner)
        await runner.setup()
        if runner.server is None:
            raise RuntimeError("the runner has no server after its setup")
        who = self._node.identity
        listener = Listener(runner.server, f"{who.cluster}/{who.node}")
        self._servers.append(await asyncio.get_running_loop().create_server(listener.accept, sock=sock))
        return listener


def _tcp_socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
        raise UsageError(f"api.listen: {host} is no address; write an IP address such as 127.0.0.1") from None
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
        sock.setblocking(False)
    except OSError as e:
        sock.close()
        raise UsageError(f"api.listen: {host}:{port}: {_why(e, host, port)}") from None
    return sock


def _why(e: OSError, host: str, port: int) -> str:
    if e.errno == errno.EADDRINUSE:
        return f"{holder(host, port)} listens there already; stop it, or choose another port"
    if e.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address; use one of its own, or 127.0.0.1"
    if e.errno == errno.EACCES:
        return "ports below 1024 are for root; choose a higher one"
    return e.strerror or str(e)


def _unix_socket(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > 107:
        raise UsageError(
            f"run_dir: {path} is longer than the 107 bytes that a socket's path may have; choose a shorter"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(path)
        sock.bind(str(path))
        # nobody can connect before listen, so the mode is right from the first connection on
        os.chmod(path, 0o600)
        sock.listen(128)
        sock.setblocking(False)
    except OSError as e:
        sock.close()
        raise UsageError(f"run_dir: {path}: {e.strerror or e}") from None
    except BaseException:
        sock.close()
        raise
    return sock


def _make_room(path: Path) -> None:
    """Remove a socket that nobody answers any more; UsageError where somebody does."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_socket():
        raise UsageError(f"{path} is no socket; it is not yrnode's: move it away, or choose another run_dir")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # busy or not ours to ask: somebody is there
    raise UsageError(f"another yrnode answers on {path}; stop it first, or choose another run_dir")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _unlink_own(path: Path, inode: tuple[int, int]) -> None:
    if _inode(path) == inode:
        with contextlib.suppress(OSError):
            path.unlink()
