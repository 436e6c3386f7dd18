"""What cannot work is refused with one line that names the thing and the cure, exit 2, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.node import BIN, YrNode, cluster_text, yrnode


@pytest.fixture
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(ranks=1), start=False) as node:
        yield node


def edit(node: YrNode, old: str, new: str) -> None:
    text = node.config.read_text()
    assert old in text
    node.config.write_text(text.replace(old, new))


def port_of(node: YrNode, key: str) -> int:
    return int(node.config.read_text().partition(f"{key}: ")[2].split(",")[0].split("}")[0].split()[0])


def broken_yaml(node: YrNode) -> tuple[str, ...]:
    edit(node, "groups:", "groups: [")
    return ("cluster.yaml:",)


def unknown_key(node: YrNode) -> tuple[str, ...]:
    edit(node, "shared_memory: 256MB", "shared_memorry: 256MB")
    return ("cluster.yaml:6", "shared_memorry", "shared_memory")


def wrong_unit(node: YrNode) -> tuple[str, ...]:
    edit(node, "node_timeout: 5s", "node_timeout: 5")
    return ("cluster.yaml:6", "node_timeout", "5s")


def node_not_in_file(node: YrNode) -> tuple[str, ...]:
    edit(node, "nodes: [n0]", "nodes: [n1]")
    return ("cluster.yaml:5", "n1")


def no_such_file(node: YrNode) -> tuple[str, ...]:
    node.config.unlink()
    return ("cluster.yaml", "--config")


def missing_binary(node: YrNode) -> tuple[str, ...]:
    edit(node, "yrnode.demo.engine]", "yrnode.demo.engine], dscli: /nowhere/dscli")
    return ("/nowhere/dscli", "bin")


def missing_model(node: YrNode) -> tuple[str, ...]:
    edit(node, "model: demo", "model: /nowhere/model")
    return ("/nowhere/model", "groups.serve.model")


def incomplete_model(node: YrNode) -> tuple[str, ...]:
    model = node.dir / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "x"}')
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    edit(node, "model: demo", "model: ./model")
    return ("model-1.safetensors", "index")


def foreign_data(node: YrNode) -> tuple[str, ...]:
    member = node.dir / "state/etcd/member"
    member.mkdir(parents=True)
    (member.parent / "yrnode.json").write_text('{"cluster": "other", "node": "n7"}')
    return ("other/n7", "etcd.data_dir")


def data_of_nobody(node: YrNode) -> tuple[str, ...]:
    (node.dir / "state/etcd/member").mkdir(parents=True)
    return ("not made by yrnode", "etcd.data_dir")


def file_in_the_way(node: YrNode) -> tuple[str, ...]:
    (node.dir / "log").write_text("")
    return ("log_dir", "is a file")


def state_dir_too_long(node: YrNode) -> tuple[str, ...]:
    edit(node, "state_dir: ./state", f"state_dir: ./{'s' * 60}")
    return ("state_dir", "shorter")


def group_names_itself(node: YrNode) -> tuple[str, ...]:
    edit(node, "model: demo", "model: demo\n    restart_with: [serve]")
    return ("groups.serve.restart_with", "itself")


@pytest.mark.parametrize(
    "spoil",
    [
        broken_yaml,
        unknown_key,
        wrong_unit,
        node_not_in_file,
        no_such_file,
        missing_binary,
        missing_model,
        incomplete_model,
        foreign_data,
        data_of_nobody,
        file_in_the_way,
        state_dir_too_long,
        group_names_itself,
    ],
)
def test_refused(node: YrNode, spoil: Callable[[YrNode], tuple[str, ...]]) -> None:
    words = spoil(node)
    before = sorted(node.dir.rglob("*"))
    done = node.cli("run")
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0]
    assert sorted(node.dir.rglob("*")) == before, "something was left behind"
    assert node.left() == []


@pytest.mark.parametrize("key", ["client_port", "peer_port", "datasystem: {port", "    port", "listen"])
def test_a_taken_port_is_named_with_its_holder(node: YrNode, key: str) -> None:
    port = int(node.api.rpartition(":")[2]) if key == "listen" else port_of(node, key)
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        holder.listen()
        done = node.cli("run")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert str(port) in line
    assert str(os.getpid()) in line
    assert node.left() == []
    assert [p for p in node.dir.rglob("*") if p.is_socket()] == []


def test_unknown_node_name(node: YrNode) -> None:
    done = node.cli("run", "--node", "n9")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "n9" in line
    assert "n0" in line


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="drops a capability of root")
def test_no_permission(node: YrNode) -> None:
    state = node.dir / "state"
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", str(BIN / "yrnode"), "run"]
    done = subprocess.run(
        [*argv, "--config", str(node.config)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2, done
    (line,) = done.stderr.strip().splitlines()
    assert "no permission" in line
    assert str(state) in line


@pytest.fixture
def full(node: YrNode) -> Iterator[Path]:
    where = node.dir / "log"
    where.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)], check=False)
    if done.returncode != 0:
        pytest.skip("cannot mount a small tmpfs here")
    yield where
    subprocess.run(["umount", str(where)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs")
def test_disk_full(node: YrNode, full: Path) -> None:
    done = node.cli("run")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "disk full" in line
    assert str(full) in line


def test_a_binary_that_vanishes_later_is_a_failed_start_with_its_cause(node: YrNode) -> None:
    link = node.dir / "etcd-link"
    link.symlink_to(BIN / "etcd")
    edit(node, "yrnode.demo.engine]", "yrnode.demo.engine], etcd: ./etcd-link")
    node.start()
    pid = node.wait("etcd", lambda: node.component("etcd").get("pid"))
    link.unlink()
    os.kill(pid, 9)
    cause = node.wait(
        "the cause",
        lambda: (f := node.component("etcd").get("last_failure")) and "etcd-link" in f["cause"] and f["cause"],
    )
    assert "No such file" in cause
    link.symlink_to(BIN / "etcd")
    node.wait("etcd ready again", lambda: node.component("etcd")["state"] == "ready")
    assert node.stop() == 0
