"""What only the client on the etcd3 package must do: get imported at all, and leave no trace of how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.conftest import FAST
from tests.support.etcd import Etcd, free_port
from yrnode.config.load import load
from yrnode.model.errors import UsageError
from yrnode.store.connect import connect, refuse_unusable
from yrnode.store.etcd3_backend import SWITCHES, Etcd3Store
from yrnode.store.gateway import EtcdGateway

FILE = "cluster: c\nnodes: {n0: {address: 127.0.0.1}}\ngroups: {serve: {ranks: {n0: 1}, model: /m}}\n"


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    words = [sys.executable, "-c", code]
    return subprocess.run(words, env={**clean, **env}, capture_output=True, text=True, timeout=60, check=False)


def test_a_child_sees_nothing_of_how_the_package_was_imported() -> None:
    done = run(
        "import os, subprocess\n"
        "from yrnode.store.etcd3_backend import SWITCHES, package\n"
        "package()\n"
        "from google.protobuf.internal import api_implementation\n"
        "print(api_implementation.Type())\n"
        "child = subprocess.run(['env'], capture_output=True, text=True).stdout\n"
        "print([name for name in SWITCHES if name in child or name in os.environ])\n"
    )
    assert (done.stdout, done.stderr) == ("python\n[]\n", "")


def test_what_the_caller_had_set_is_put_back() -> None:
    code = (
        "import os\n"
        "from yrnode.store.etcd3_backend import package\n"
        "package()\n"
        "print(os.environ['PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION'])\n"
    )
    assert run(code, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="upb").stdout == "upb\n"


@pytest.mark.parametrize("missing", ["etcd3", "grpc"])
def test_without_the_package_it_is_one_line(tmp_path: Path, missing: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE + "etcd: {client: etcd3}\n")
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from yrnode.cli.main import main\n"
        f"sys.exit(main(['check', '--config', {str(file)!r}]))\n"
    )
    done = run(code)
    assert done.returncode == 2
    assert done.stderr.startswith("etcd.client: etcd3 cannot be imported here (")
    assert done.stderr.endswith("); install yrnode[etcd3], or write gateway\n")
    assert done.stderr.count("\n") == 1


async def test_the_cluster_file_chooses(tmp_path: Path) -> None:
    for text, kind in (
        ("", EtcdGateway),
        ("etcd: {client: gateway}\n", EtcdGateway),
        ("etcd: {client: etcd3}\n", Etcd3Store),
    ):
        file = tmp_path / "cluster.yaml"
        file.write_text(FILE + text)
        cluster = load(str(file))
        refuse_unusable(cluster)
        store = connect(cluster)
        assert type(store) is kind
        await store.close()
    file.write_text(FILE + "etcd: {client: grpc}\n")
    with pytest.raises(UsageError, match=r"etcd\.client"):
        load(str(file))


async def test_a_proxy_of_the_environment_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, etcd: Etcd, prefix: str
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    store = Etcd3Store([etcd.url], **FAST)
    try:
        await store.put(prefix, b"1")
    finally:
        await store.close()
