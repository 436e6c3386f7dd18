"""What an engine leaves outside its own memory: shared memory, semaphores, sockets."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import socket
import uuid

SEGMENT = 64 * 1024  # bytes; vLLM's are hundreds of megabytes
SHM = "/dev/shm"  # noqa: S108 - where POSIX shared memory is


class Residue:
    """Segments and semaphores in /dev/shm, mapped by all processes of the tree; a clean end removes them.

    Sockets in VLLM_RPC_BASE_PATH stay even then, as ZeroMQ's do. Where that is not set vLLM litters the
    temporary directory; the stand-in does not.
    """

    def __init__(self, engines: int) -> None:
        self.paths: list[str] = []
        self._maps: list[mmap.mmap] = []
        self._sockets: list[socket.socket] = []
        for _ in range(engines):
            names = [f"psm_{secrets.token_hex(4)}" for _ in range(2)]
            names += [f"sem.mp-{secrets.token_hex(4)}" for _ in range(3)]
            for name in names:
                self._segment(os.path.join(SHM, name), SEGMENT if name.startswith("psm_") else 32)
            if base := os.environ.get("VLLM_RPC_BASE_PATH"):
                for _ in range(6):
                    self._socket(os.path.join(base, str(uuid.uuid4())))

    def _segment(self, path: str, size: int) -> None:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        self.paths.append(path)
        os.ftruncate(fd, size)
        self._maps.append(mmap.mmap(fd, size))
        os.close(fd)

    def _socket(self, path: str) -> None:
        if len(path) > 107:
            raise OSError(f'ipc path "{path}" is longer than 107 characters (sizeof(sockaddr_un.sun_path)).')
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(path)
        sock.listen()
        self._sockets.append(sock)

    def remove(self) -> None:
        """Unlink what a clean end unlinks."""
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
