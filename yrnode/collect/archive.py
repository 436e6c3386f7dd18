"""One archive, which is whole or not there at all."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import tarfile
import time
from pathlib import Path
from types import TracebackType

from yrnode.model.errors import UsageError

MODE = 0o600
"""Of the archive: what it says is for its owner."""


class Archive:
    """A tar.gz at `path` with everything below one folder. UsageError where something is there, or nothing can be.

    It has no name before it is whole, so that nothing is left of half an archive, however that came; where the file
    system cannot do that, a hidden name beside its own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = path.name.removesuffix(".tar.gz")
        self._beside: Path | None = None
        if os.path.lexists(path):
            raise UsageError(f"{path} is there already; name another file")
        try:
            fd = self._open()
        except OSError as e:
            raise UsageError(f"{path} cannot be written: {e.strerror}; name another place") from None
        self._file = os.fdopen(fd, "wb")
        self._zip = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._file, mtime=0)
        self._tar = tarfile.open(fileobj=self._zip, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115  closed by finish

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CLOEXEC
        try:
            return os.open(self.path.parent, flags | os.O_TMPFILE, MODE)
        except OSError as e:
            if e.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
                raise
        self._beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        return os.open(self._beside, flags | os.O_CREAT | os.O_EXCL, MODE)

    def add(self, name: str, data: bytes) -> None:
        """A file of the archive. OSError where the disk is full."""
        info = tarfile.TarInfo(f"{self._folder}/{name}")
        info.size, info.mode, info.mtime = len(data), MODE, int(time.time())
        self._tar.addfile(info, io.BytesIO(data))

    def finish(self) -> int:
        """Give it its name; its size in bytes. UsageError where somebody has taken the name meanwhile."""
        self._tar.close()
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        try:
            self._name()
        except FileExistsError:
            raise UsageError(f"{self.path} has just been made by somebody else; name another file") from None
        except OSError as e:
            if self._beside is None or e.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            # a file system without links
            os.rename(self._beside, self.path)
        self._file.close()
        return size

    def _name(self) -> None:
        """Unlike a rename, a link never takes another's place."""
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # with a folder's descriptor the link in /proc is followed
            os.link(self._beside or f"/proc/self/fd/{self._file.fileno()}", self.path.name, dst_dir_fd=folder)
        finally:
            os.close(folder)

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        if self._beside is not None:
            with contextlib.suppress(OSError):
                self._beside.unlink()
