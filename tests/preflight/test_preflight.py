"""What would make the start fail is said in one line with the cure, and looking changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.lab import PATH
from tests.support.etcd import ETCD_35, free_port, start_etcd
from yrnode.components import node
from yrnode.components.host import Host
from yrnode.config.load import load
from yrnode.preflight import ascend, npus, places
from yrnode.preflight.finding import Look
from yrnode.preflight.host import QUICK, admission, problems, together
from yrnode.residue import inventory, orphans

CALLER = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

PURPOSES = {
    "client": "etcd.client_port",
    "peer": "etcd.peer_port",
    "worker": "datasystem.port",
    "rank": "groups.serve.port",
}


class Place:
    """A cluster file in a directory of its own, and what preflight says about this host."""

    def __init__(self, where: Path) -> None:
        self.dir = where
        found: set[int] = set()
        while len(found) < len(PURPOSES):
            found.add(free_port())
        self.ports = dict(zip(PURPOSES, found, strict=True))
        self.text = f"""
cluster: c
nodes: {{n0: {{address: 127.0.0.1}}}}
etcd: {{client_port: {self.ports["client"]}, peer_port: {self.ports["peer"]}}}
datasystem: {{port: {self.ports["worker"]}}}
groups: {{serve: {{ranks: {{n0: 1}}, model: MODEL, port: {self.ports["rank"]}}}}}
bin: {{vllm: [python, -m, x]}}
state_dir: ./state
run_dir: ./run
log_dir: ./log
"""

    def edit(self, old: str, new: str) -> None:
        assert old in self.text
        self.text = self.text.replace(old, new)

    def host(self) -> Host:
        path = self.dir / "cluster.yaml"
        path.write_text(self.text)
        return node.host_of(load(path), "n0", CALLER)

    def said(self) -> list[str]:
        host = self.host()
        before = self.tree()
        found = problems(host, node.specs(host))
        assert self.tree() == before, "looking must change nothing"
        assert all("\n" not in line for line in found)
        return found

    def tree(self) -> list[tuple[str, int, int, float]]:
        found = []
        for path in sorted(self.dir.rglob("*")):
            info = path.lstat()
            found.append((str(path), info.st_mode, info.st_size, info.st_mtime))
        return found


@pytest.fixture
def place() -> Iterator[Place]:
    # short: sockets are to fit into it
    with tempfile.TemporaryDirectory(prefix="yrnode-") as where:
        yield Place(Path(where))


def test_nothing_stands_in_the_way(place: Place) -> None:
    assert place.said() == []
    # nor when everything is there already
    for name in ("state/etcd/member", "run", "log"):
        (place.dir / name).mkdir(parents=True)
    (place.dir / "state/etcd/yrnode.json").write_text('{"cluster": "c", "node": "n0"}')
    assert place.said() == []


def test_what_runs_already_is_taken_over_whatever_the_host_looks_like(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.edit("model: MODEL", "model: m, env: {GLOO_SOCKET_IFNAME: nowhere0}")
    host = place.host()
    refused, _ = admission(host, node.specs(host))
    assert [line for line in refused if "nowhere0" in line] == refused != []
    monkeypatch.setattr(orphans, "find", lambda *_: [os.getpid()])
    taken, said = admission(host, node.specs(host))
    assert taken == []
    assert set(refused) <= set(said)
    # what has erased its environment is known by its record
    monkeypatch.setattr(orphans, "find", lambda *_: [])
    assert admission(host, node.specs(host))[0] == refused
    monkeypatch.setattr(inventory, "recorded", lambda _: [os.getpid()])
    assert admission(host, node.specs(host))[0] == []
    assert places.runs(host)


def test_what_is_not_certain_stops_no_start(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.edit("model: MODEL", "model: m, kv_connector: {ascend_store: {}}, env: {PYTHONHASHSEED: random}")
    old = {ascend.CANN: "8.3.RC1", ascend.DRIVER: "24.1.0"}
    monkeypatch.setattr(ascend, "versions", lambda *_: old)
    monkeypatch.setattr(npus, "present", lambda _: True)
    host = place.host()
    specs = node.specs(host)
    refused, said = admission(host, specs)
    assert refused == []
    for words in ("CANN: 8.3.RC1", "driver: 24.1.0", "PYTHONHASHSEED is not fixed"):
        assert any(words in line for line in said), said
    # check is as strict as ever
    found = {f.name: f.verdict.value for f in together(QUICK, Look(host, specs), 5.0)}
    assert [found[name] for name in ("CANN", "driver", "hash seed")] == ["blocker"] * 3


# ports


@pytest.mark.parametrize("name", PURPOSES)
def test_a_taken_port(place: Place, name: str) -> None:
    with socket.create_server(("127.0.0.1", place.ports[name])):
        (line,) = place.said()
    where = f"port 127.0.0.1:{place.ports[name]} ({PURPOSES[name]})"
    assert line.startswith(f"{where} is in use by pid {os.getpid()} (")
    assert line.endswith(f"; end it, or change {PURPOSES[name]}")


HOLD = """
import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("mark", "ours"), [("c/n0/etcd/1234", True), ("c/n1/etcd/1234", False), ("other/n0/etcd/1", False), ("", False)]
)
def test_a_port_that_our_own_leftover_holds_is_freed_before_the_start(place: Place, mark: str, ours: bool) -> None:
    env = {**PATH, "YRNODE_INSTANCE": mark, "YRNODE_HOME": str(place.dir / "state")}
    argv = [sys.executable, "-S", "-c", HOLD, str(place.ports["client"])]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            assert (place.said() == []) is ours
        finally:
            child.kill()


def test_an_address_that_is_another_hosts_is_said_once(place: Place) -> None:
    place.edit("address: 127.0.0.1", "address: 192.0.2.7")
    assert place.said() == [
        "nodes.n0.address: this host has no address 192.0.2.7; correct it, or name the node with --node"
    ]


# programs


def test_missing_programs(place: Place) -> None:
    place.edit("bin: {vllm: [python, -m, x]}", "bin: {vllm: no-vllm, dscli: ./no/dscli, etcd: /no/etcd}")
    dscli, etcd, vllm = place.said()
    assert dscli.startswith(f"bin.dscli: {place.dir}/no/dscli is no program; correct its path")
    assert etcd.startswith("bin.etcd: /no/etcd is no program; correct its path")
    assert vllm.startswith("bin.vllm: no-vllm is neither in ")
    assert vllm.endswith("install it, or name its path under bin:")


def test_only_what_this_node_runs_is_needed(place: Place) -> None:
    place.edit("etcd: {", "etcd: {external: [http://10.0.0.9:2379], ")
    place.edit("bin: {vllm: [python, -m, x]}", "bin: {vllm: [python, -m, x], etcd: /no/etcd}")
    assert place.said() == []


def test_a_program_that_may_not_be_run(place: Place) -> None:
    path = place.dir / "dscli"
    path.write_text("#!/bin/sh\n")
    path.chmod(stat.S_IRUSR)
    place.edit("bin: {", "bin: {dscli: ./dscli, ")
    (line,) = place.said()
    assert line.startswith(f"bin.dscli: {path} is no program")


def test_a_program_in_the_path_that_env_from_sets(place: Place) -> None:
    vllm = place.dir / "conda/bin/my-vllm"
    vllm.parent.mkdir(parents=True)
    vllm.write_text("#!/bin/sh\n")
    vllm.chmod(0o700)
    place.edit("vllm: [python, -m, x]", "vllm: my-vllm")
    assert len(place.said()) == 1
    (place.dir / "set.sh").write_text(f"export PATH={vllm.parent}:$PATH\n")
    place.text += "env_from: [./set.sh]\n"
    assert place.said() == []


# the model


def test_a_model_that_is_not_there(place: Place) -> None:
    place.edit("MODEL", "/no/model")
    assert place.said() == ["groups.serve.model: /no/model: does not exist; correct the path or its permissions"]
    # a name is not looked for on this disk
    place.edit("/no/model", "org/model")
    assert place.said() == []


SAY = """
import json, sys
from pathlib import Path
from yrnode.components import node
from yrnode.config.load import load
from yrnode.preflight.host import problems
host = node.host_of(load(Path(sys.argv[1])), "n0", json.loads(sys.argv[2]))
print(json.dumps(problems(host, node.specs(host))))
"""


def said_without_privileges(place: Place) -> list[str]:
    """What preflight says to a root that may not look past permissions."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("no setpriv")
    place.host()
    argv = [setpriv, "--bounding-set=-dac_override,-dac_read_search", sys.executable, "-c", SAY]
    argv += [str(place.dir / "cluster.yaml"), json.dumps(CALLER)]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: list[str] = json.loads(done.stdout)
    return found


def others(path: Path) -> Path:
    """A directory of somebody else, closed to all others."""
    path.mkdir(parents=True)
    path.chmod(0o700)
    os.chown(path, 65534, 65534)
    return path


@AS_ROOT
def test_a_model_that_cannot_be_read(place: Place) -> None:
    model = others(place.dir / "closed/model")
    place.edit("MODEL", str(model))
    assert said_without_privileges(place) == [
        f"groups.serve.model: {model}: cannot be read; correct the path or its permissions"
    ]
    # nor looked at: its parent is closed
    others(place.dir / "shut")
    place.edit(str(model), str(place.dir / "shut/model"))
    assert said_without_privileges(place) == [
        f"groups.serve.model: {place.dir}/shut/model: Permission denied; correct the path or its permissions"
    ]


# places


@pytest.mark.parametrize("key", ["state_dir", "run_dir", "log_dir"])
def test_a_file_in_place_of_a_directory(place: Place, key: str) -> None:
    name = key.removesuffix("_dir")
    (place.dir / name).write_text("")
    line = place.said()[0]
    assert line == f"{key} {place.dir}/{name}: {place.dir}/{name} is a file; remove it or use another path"
    place.edit(f"./{name}", f"./{name}/deeper/still")
    assert place.said()[0].startswith(f"{key} {place.dir}/{name}/deeper/still: {place.dir}/{name} is a file")


@AS_ROOT
@pytest.mark.parametrize("key", ["state_dir", "run_dir", "log_dir"])
def test_a_directory_of_somebody_else(place: Place, key: str) -> None:
    path = others(place.dir / key.removesuffix("_dir"))
    line = said_without_privileges(place)[0]
    assert line == (
        f"{key} {path}: no permission to write in {path}; run as its owner, change its owner, or use another path"
    )


@AS_ROOT
def test_data_of_somebody_else(place: Place) -> None:
    others(place.dir / "data")
    place.edit("etcd: {", "etcd: {data_dir: ./data/etcd, ")
    (line,) = said_without_privileges(place)
    assert line.startswith(f"etcd.data_dir {place.dir}/data/etcd: ")


@pytest.fixture
def mounted(place: Place) -> Iterator[Callable[[str], Path]]:
    made: list[Path] = []

    def mount(options: str) -> Path:
        where = place.dir / "log"
        where.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)], check=False)
        if done.returncode != 0:
            pytest.skip("cannot mount a small tmpfs here")
        made.append(where)
        return where

    yield mount
    for where in made:
        subprocess.run(["umount", str(where)], check=True)


@AS_ROOT
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("size=8m", "disk full: 8 MB free, 64 MB needed; make room or use another path"),
        ("size=100m,nr_inodes=100", "disk full: 99 inodes free, 256 needed; make room or use another path"),
        ("size=100m,ro", "{} is on a read-only file system; use another path"),
    ],
)
def test_no_room(place: Place, mounted: Callable[[str], Path], options: str, words: str) -> None:
    where = mounted(options)
    assert place.said() == [f"log_dir {where}: {words.format(where)}"]


def test_paths_that_are_too_long_for_sockets(place: Place) -> None:
    place.edit("./state", f"./{'s' * 70}")
    (line,) = place.said()
    assert line.startswith(f"state_dir {place.dir}/{'s' * 70}: too long: the worker's sockets would be in a path of ")
    assert line.endswith("80 are allowed; use a shorter path")
    place.edit("s" * 70, "state")
    # the control socket fits, an engine's do not
    free = 107 - len("/yrnode.sock") - len(str(place.dir)) - 1
    place.edit("./run", f"./{'r' * free}")
    (line,) = place.said()
    assert line == (
        f"run_dir {place.dir}/{'r' * free}: too long: sockets of rank/serve/0 would have 145 bytes, "
        "107 are allowed; use a shorter path"
    )


# etcd's data


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        ('{"cluster": "other", "node": "n0"}', "belongs to other/n0, not to c/n0"),
        ('{"cluster": "c", "node": "n7"}', "belongs to c/n7, not to c/n0"),
        (None, "was not made by yrnode"),
        ("torn", "yrnode.json is unreadable"),
    ],
)
def test_a_data_directory_of_another_cluster(place: Place, owner: str | None, words: str) -> None:
    data = place.dir / "state/etcd"
    (data / "member").mkdir(parents=True)
    if owner is not None:
        (data / "yrnode.json").write_text(owner)
    (line,) = place.said()
    assert line.startswith(f"etcd.data_dir: etcd data in {data}")
    assert words in line
    assert line.endswith("move it away, or set etcd.data_dir to another directory")


def test_data_that_another_etcd_uses(place: Place) -> None:
    with start_etcd(place.dir / "theirs"):
        data = place.dir / "theirs/data"
        (data / "yrnode.json").write_text('{"cluster": "c", "node": "n0"}')
        place.edit("etcd: {", "etcd: {data_dir: ./theirs/data, ")
        host = place.host()
        assert problems(host, node.specs(host)) == [
            f"etcd.data_dir: etcd data in {data} is locked by another etcd; end that one first"
        ]


def test_data_that_our_own_leftover_uses_is_freed_before_the_start(place: Place) -> None:
    data = place.dir / "state/etcd"
    data.mkdir(parents=True, mode=0o700)
    (data / "yrnode.json").write_text('{"cluster": "c", "node": "n0"}')
    env = {**PATH, "YRNODE_INSTANCE": "c/n0/etcd/1", "YRNODE_HOME": str(place.dir / "state")}
    url, peer = f"http://127.0.0.1:{place.ports['client']}", f"http://127.0.0.1:{place.ports['peer']}"
    words = [f"--data-dir={data}", f"--listen-client-urls={url}", f"--advertise-client-urls={url}", "--name=n0"]
    words += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=n0={peer}"]
    with subprocess.Popen([str(ETCD_35), *words, "--logger=zap"], env=env, stderr=subprocess.PIPE) as child:
        try:
            assert child.stderr is not None
            for line in child.stderr:
                if b"ready to serve client requests" in line:
                    break
            host = place.host()
            assert problems(host, node.specs(host)) == []
        finally:
            child.kill()
