"""From `etcd.tls` and `etcd.auth` to a client; what is no good is one line, before anything starts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.certs import Certs
from tests.support.etcd import Etcd, free_port
from tests.support.node import BIN
from tests.support.users import PASSWORD, enable_auth
from yrnode.config.cluster import Cluster
from yrnode.config.load import load
from yrnode.model.errors import UsageError
from yrnode.store.connect import connect, credentials


class ClusterOf:
    def __init__(self, directory: Path, certs: Certs) -> None:
        self.file = directory / "cluster.yaml"
        self.tls = f"tls: {{ca: {certs.ca}, cert: {certs.cert('client')}, key: {certs.key('client')}}}"
        self.password = directory / "password"
        self.password.write_text(f"{PASSWORD}\n")
        self.auth = f"auth: {{user: node, password_file: {self.password}}}"

    def __call__(self, etcd: str) -> Cluster:
        self.file.write_text(f"""
cluster: c
nodes: {{n0: {{address: 127.0.0.1}}}}
etcd: {{{etcd}}}
datasystem: {{args: {{etcd_cert: /w.pem, etcd_key: /w.key}}}}
groups: {{serve: {{ranks: {{n0: 1}}, model: /m, port: {free_port()}}}}}
""")
        return load(str(self.file))


@pytest.fixture
def cluster_of(tmp_path: Path, certs: Certs) -> ClusterOf:
    """A cluster file beside the certificates' copies; `etcd` is the text of its part."""
    return ClusterOf(tmp_path, certs)


async def test_a_client_from_the_cluster_file(tls_etcd: Etcd, cluster_of: ClusterOf, prefix: str) -> None:
    enable_auth(tls_etcd.call, prefix)
    store = connect(cluster_of(f"external: ['{tls_etcd.url}'], {cluster_of.tls}, {cluster_of.auth}"))
    try:
        await store.put(prefix, b"1")
        kv = await store.get(prefix)
        assert kv is not None
        assert kv.value == b"1"
    finally:
        await store.close()


def test_no_secret_is_shown(cluster_of: ClusterOf) -> None:
    found = credentials(cluster_of(f"{cluster_of.tls}, {cluster_of.auth}"))
    assert found.password == PASSWORD
    assert PASSWORD not in repr(found)


FAULTS = {
    "no CA": ("ca: {tmp}/none", "etcd.tls.ca: {tmp}/none: No such file or directory; write the path"),
    "a directory": ("ca: {tmp}", "etcd.tls.ca: {tmp}: Is a directory; write the path"),
    "an empty CA": ("ca: {tmp}/empty", "etcd.tls.ca: {tmp}/empty holds no certificate; write"),
    "no PEM": ("ca: {tmp}/text", "etcd.tls.ca: {tmp}/text holds no certificate; write"),
    "no key": (
        "ca: {certs}/ca.pem, cert: {certs}/client.pem, key: {tmp}/none",
        "etcd.tls.key: {tmp}/none: No such file or directory; write the path",
    ),
    "a key of another": (
        "ca: {certs}/ca.pem, cert: {certs}/client.pem, key: {certs}/server.key",
        "etcd.tls.cert: {certs}/client.pem and {certs}/server.key are no certificate and its private key; write",
    ),
    "a key with a passphrase": (
        "ca: {certs}/ca.pem, cert: {certs}/client.pem, key: {tmp}/locked",
        "etcd.tls.cert: {certs}/client.pem and {tmp}/locked are no certificate and its private key; write",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_files_of_tls_that_are_no_good(cluster_of: ClusterOf, certs: Certs, tmp_path: Path, fault: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("a certificate\n")
    if "passphrase" in fault:
        words = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", certs.key("client"), "-out", "locked"]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=30)
    tls, line = (text.replace("{tmp}", str(tmp_path)).replace("{certs}", str(certs.dir)) for text in FAULTS[fault])
    with pytest.raises(UsageError) as caught:
        credentials(cluster_of(f"external: ['https://127.0.0.1:1'], tls: {{{tls}}}"))
    assert len(caught.value.lines) == 1
    assert caught.value.lines[0].startswith(line)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "{file}: No such file or directory; write the path of a file that this user may read"),
        (b"", "{file} holds no password on one line; write"),
        (b"one\ntwo\n", "{file} holds no password on one line; write"),
        (b"\xff\xfe", "{file} is no text; write"),
    ],
)
def test_password_files_that_are_no_good(cluster_of: ClusterOf, content: bytes | None, line: str) -> None:
    file = cluster_of.password
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        credentials(cluster_of(f"{cluster_of.tls}, {cluster_of.auth}"))
    assert len(caught.value.lines) == 1
    assert caught.value.lines[0].startswith(f"etcd.auth.password_file: {line.format(file=file)}")


@pytest.mark.parametrize("verb", ["check", "run"])
def test_the_command_line_says_it_in_one_line(cluster_of: ClusterOf, verb: str) -> None:
    cluster_of.password.unlink()
    cluster_of(f"{cluster_of.tls}, {cluster_of.auth}")
    words = [str(BIN / "yrnode"), verb, "--config", str(cluster_of.file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"etcd\.auth\.password_file: \S+: No such file or directory; .*\n", done.stderr)
