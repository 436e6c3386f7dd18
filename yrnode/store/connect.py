"""The store that a cluster file names."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from yrnode.config.cluster import Cluster
from yrnode.config.layout import etcd_endpoints
from yrnode.model.errors import UsageError
from yrnode.store.credentials import Credentials
from yrnode.store.interface import Store

TIMEOUT_S = 2.0


def connect(cluster: Cluster, endpoints: Sequence[str] = (), *, timeout_s: float = TIMEOUT_S) -> Store:
    """A client of all endpoints of the cluster's etcd, or of those given. UsageError as `credentials`."""
    where, own = tuple(endpoints) or etcd_endpoints(cluster), credentials(cluster)
    if cluster.etcd.client == "etcd3":
        from yrnode.store.etcd3_backend import Etcd3Store

        return Etcd3Store(where, timeout_s=timeout_s, credentials=own)
    from yrnode.store.gateway import EtcdGateway

    return EtcdGateway(where, timeout_s=timeout_s, credentials=own)


def refuse_unusable(cluster: Cluster) -> None:
    """UsageError, before anything starts, where `connect` could not make a client."""
    credentials(cluster)
    if cluster.etcd.client == "etcd3":
        from yrnode.store.etcd3_backend import package

        package()


def credentials(cluster: Cluster) -> Credentials:
    """From the files of `etcd.tls` and `etcd.auth`. UsageError with a line for each file that is no good."""
    tls, auth = cluster.etcd.tls, cluster.etcd.auth
    faults: list[str] = []
    found = Credentials()
    if tls is not None:
        files = {"etcd.tls.ca": tls.ca, "etcd.tls.cert": tls.cert, "etcd.tls.key": tls.key}
        faults += [f"{key}: {why}" for key, file in files.items() if file and (why := _unreadable(file))]
        found = Credentials(tls.ca, tls.cert, tls.key)
        if not faults:
            faults += _unfit(found)
    if auth is not None:
        password, why = _password(auth.password_file)
        faults += [f"etcd.auth.password_file: {why}"] if why else []
        found = Credentials(found.ca, found.cert, found.key, auth.user, password)
    if faults:
        raise UsageError(*faults)
    return found


def _unreadable(file: Path) -> str:
    try:
        with open(file, "rb"):
            return ""
    except OSError as e:
        return f"{file}: {e.strerror}; write the path of a PEM file that this user may read"


def _unfit(own: Credentials) -> list[str]:
    try:
        Credentials(own.ca).client_context()
    except (OSError, ssl.SSLError):
        return [f"etcd.tls.ca: {own.ca} holds no certificate; write the path of a PEM file with the CA's"]
    try:
        own.client_context()
    except (OSError, ssl.SSLError):
        text = f"{own.cert} and {own.key} are no certificate and its private key; write two PEM files that fit"
        return [f"etcd.tls.cert: {text}, the key without a passphrase"]
    return []


def _password(file: Path) -> tuple[str, str]:
    """The password, or why there is none."""
    try:
        text = file.read_text("utf-8")
    except OSError as e:
        return "", f"{file}: {e.strerror}; write the path of a file that this user may read"
    except UnicodeDecodeError:
        return "", f"{file} is no text; write the password into it and nothing else"
    # an editor ends a file with a newline, which no password has
    word = text.rstrip("\r\n")
    if not word or "\n" in word:
        return "", f"{file} holds no password on one line; write the password into it and nothing else"
    return word, ""
