"""What a client of etcd proves itself with, and what it recognises etcd by."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Credentials:
    """PEM files and a user. With `ca` alone etcd proves itself and we do not; without it the system's CAs count."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)

    def client_context(self) -> ssl.SSLContext | None:
        """For connections to etcd; None without a CA. OSError and ssl.SSLError for files that are no good."""
        if self.ca is None:
            return None
        return self._with_own(ssl.create_default_context(cafile=self.ca))

    def server_context(self) -> ssl.SSLContext | None:
        """For a port on which other members ask: as etcd's own peer port, it wants a certificate of the same CA."""
        if self.ca is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        return self._with_own(context)

    def _with_own(self, context: ssl.SSLContext) -> ssl.SSLContext:
        if self.cert is not None:
            # a key with a passphrase fails: without this, OpenSSL would ask on the terminal
            context.load_cert_chain(self.cert, self.key, password=lambda: "")
        return context


NONE = Credentials()
