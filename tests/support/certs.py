"""A CA and certificates of it for tests, made by the openssl command."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certs:
    """PEM files in `dir`: NAME.pem and NAME.key.

    `server` is for etcd on 127.0.0.1 to 4, with both uses; `half` the same without clientAuth; `client` has no CN;
    `cn` has the CN root; `stranger` is a client's of another CA.
    """

    dir: Path

    @property
    def ca(self) -> Path:
        return self.dir / "ca.pem"

    def cert(self, name: str) -> Path:
        return self.dir / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.dir / f"{name}.key"

    @property
    def flags(self) -> tuple[str, ...]:
        """etcd's, for clients and peers, as yrnode sets them."""
        own = (("trusted-ca-file", self.ca), ("cert-file", self.cert("server")), ("key-file", self.key("server")))
        return tuple(f"--{side}{name}={file}" for side in ("", "peer-") for name, file in own)

    @cached_property
    def context(self) -> ssl.SSLContext:
        """For a test's own calls."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.cert("client"), self.key("client"))
        return context


def make_certs(directory: Path) -> Certs:
    """About 0.3 s."""
    certs = Certs(directory)
    for ca in ("ca", "other"):
        _openssl(directory, "req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={ca}", *_out(ca, "pem"))
    both, client = "serverAuth,clientAuth", "clientAuth"
    for name, subject, uses, ca in (
        ("server", "/O=etcd", both, "ca"),
        ("half", "/O=etcd", "serverAuth", "ca"),
        ("client", "/O=yrnode", client, "ca"),
        ("cn", "/CN=root", client, "ca"),
        ("stranger", "/O=yrnode", client, "other"),
    ):
        hosts = ",".join(f"IP:127.0.0.{i}" for i in range(1, 5))
        (directory / f"{name}.ext").write_text(f"subjectAltName={hosts}\nextendedKeyUsage={uses}\n")
        _openssl(directory, "req", *_KEY, "-subj", subject, *_out(name, "csr"))
        signed_by = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2")
        request = ("-req", "-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        _openssl(directory, "x509", *request, *signed_by)
    return certs


def _out(name: str, kind: str) -> tuple[str, ...]:
    return "-keyout", f"{name}.key", "-out", f"{name}.{kind}"


def _openssl(directory: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True, timeout=30)
