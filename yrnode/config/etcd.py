"""The `etcd` part of the cluster file."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from yrnode.config.fields import FilePath, Flags, Model, Name, Port, Seq

_ENDPOINT = re.compile(r"https?://([^/\s@:]+|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")


def _endpoint(value: str) -> str:
    match = _ENDPOINT.fullmatch(value)
    if not match or not 1 <= int(match[2]) <= 65535:
        raise ValueError(f'"{value}" is no endpoint; write one such as http://10.0.0.9:2379')
    return value


class Tls(Model):
    """TLS of etcd, as PEM files."""

    ca: FilePath
    """The certificate that signed the others."""
    cert: FilePath | None = None
    """Certificate of the server, and of the client; the gateway needs both uses in it, and no CN beside `auth`."""
    key: FilePath | None = None
    """Its private key."""


class Auth(Model):
    """A user of etcd."""

    user: str = Field(min_length=1)
    """The user's name."""
    password_file: FilePath
    """A file with the password and nothing else."""


class Etcd(Model):
    """The store: etcd on nodes of this cluster, or an etcd that somebody else runs."""

    nodes: Seq[Name] = ()
    """1, 3 or 5 nodes that run etcd. The first node of the file when left out."""
    external: Seq[Annotated[str, AfterValidator(_endpoint)]] = ()
    """Endpoints of an etcd that yrnode does not run."""
    client_port: Port = 2379
    """Port for clients."""
    peer_port: Port = 2380
    """Port between members."""
    data_dir: FilePath | None = None
    """etcd's data directory. `etcd` in `state_dir` when left out."""
    tls: Tls | None = None
    """Certificates; plain HTTP when left out."""
    auth: Auth | None = None
    """User and password; none when left out."""
    args: Flags = Field(default={})
    """More flags of etcd, over yrnode's own, such as quota-backend-bytes."""
