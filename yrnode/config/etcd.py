"""The `etcd` part of the cluster file."""

import re
from typing import Annotated, Literal

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
    """The certificate that signed the others; everything that talks to etcd trusts it and no other."""
    cert: FilePath | None = None
    """Certificate of this node, for etcd's server and peers where it runs here, for yrnode, and for the worker unless
    `datasystem.args` has `etcd_cert`. On a node with etcd: this node's address in its subjectAltName, and both
    serverAuth and clientAuth among its uses, or else etcd's gateway refuses every call. No CN beside `auth`. Several
    members have one name in common, the worker's `etcd_target_name_override` in `datasystem.args`: it looks for this
    one in all of their certificates."""
    key: FilePath | None = None
    """Its private key, without a passphrase."""


class Auth(Model):
    """A user of etcd, for yrnode. Users and roles are made, and auth is enabled, by an operator with etcdctl.

    The user needs readwrite on the prefixes `/yrnode/` and `/datasystem/` (with `cluster_name`: `/NAME/datasystem/`),
    and the role root where etcd runs on 3 or 5 nodes, whose members are replaced. The datasystem worker can prove
    itself only by the CN of a certificate: `etcd_cert` and `etcd_key` in `datasystem.args`.
    """

    user: str = Field(min_length=1)
    """The user's name."""
    password_file: FilePath
    """A file with the password on one line and nothing else, for this user's eyes only."""


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
    client: Literal["gateway", "etcd3"] = "gateway"
    """What yrnode speaks with: etcd's own JSON gateway, or gRPC through the etcd3 package (extra `etcd3`), for an
    external etcd whose gateway is switched off. Where yrnode runs the members, it replaces them through the gateway
    either way."""
    args: Flags = Field(default={})
    """More flags of etcd, over yrnode's own, such as quota-backend-bytes."""
