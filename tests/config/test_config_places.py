"""Finding the file, the node, the network interface and the programs."""

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from yrnode.config.files import DEFAULT_RUN_DIR, find_file, quick_run_dir, run_dir_of
from yrnode.config.load import load, read
from yrnode.config.node import interfaces, nic_of, this_node
from yrnode.config.programs import program
from yrnode.model.errors import UsageError

SHIPPED = Path(__file__).resolve().parents[2] / "config"
HOST = {"lo": ("127.0.0.1",), "bond0": ("10.0.0.2", "10.9.0.2"), "eth1": ()}


def test_the_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    assert find_file("a.yaml", {"YRNODE_CONFIG": "b.yaml"}) == "a.yaml"
    assert find_file(None, {"YRNODE_CONFIG": "b.yaml"}) == "b.yaml"
    assert find_file(None, {}) == "/etc/yrnode/cluster.yaml"


def test_a_missing_file_says_how_to_name_one(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(UsageError) as caught:
            load(path)
        assert caught.value.lines == (f"{path}: {reason}; name the cluster file with --config or YRNODE_CONFIG",)


def test_a_file_that_was_read_tells_the_line_of_any_key() -> None:
    found = read(SHIPPED / "glm5-w4a8-a3-single.yaml")
    assert found.cluster.cluster == "glm5"
    line = found.document.line(("groups", "serve", "port"))
    assert (SHIPPED / "glm5-w4a8-a3-single.yaml").read_text().splitlines()[line - 1].strip() == "port: 1025"


def test_relative_paths_begin_at_the_file_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.yaml").write_text((SHIPPED / "local-demo.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    assert load("c.yaml").run_dir == tmp_path / "run"


def test_the_node_is_named_or_found_by_its_address() -> None:
    two = load(SHIPPED / "glm5-w4a8-a2-dual.yaml")
    assert this_node(two, "n0", {"YRNODE_NODE": "n1"}, HOST) == "n0"
    assert this_node(two, None, {"YRNODE_NODE": "n0"}, HOST) == "n0"
    assert this_node(two, None, {}, HOST) == "n1"


def test_the_demo_file_finds_its_node_on_any_host() -> None:
    assert this_node(load(SHIPPED / "local-demo.yaml"), environ={}) == "n0"


@pytest.mark.parametrize(
    ("name", "environ", "host", "line"),
    [
        ("n2", {}, HOST, "--node n2: there is no such node; known: n0, n1"),
        (None, {"YRNODE_NODE": "x"}, HOST, "YRNODE_NODE x: there is no such node; known: n0, n1"),
        (
            None,
            {},
            {"lo": ("127.0.0.1",)},
            "this host has no address of a node; name one with --node or YRNODE_NODE: n0 (10.0.0.1), n1 (10.0.0.2)",
        ),
        (
            None,
            {},
            {"eth0": ("10.0.0.1", "10.0.0.2")},
            "this host has the addresses of several nodes; name one with --node or YRNODE_NODE: "
            "n0 (10.0.0.1), n1 (10.0.0.2)",
        ),
    ],
)
def test_an_unclear_node_lists_the_nodes(
    name: str | None, environ: dict[str, str], host: dict[str, tuple[str, ...]], line: str
) -> None:
    with pytest.raises(UsageError) as caught:
        this_node(load(SHIPPED / "glm5-w4a8-a2-dual.yaml"), name, environ, host)
    assert caught.value.lines == (line,)


def test_nodes_on_loopback_addresses_are_all_of_this_host() -> None:
    demo = load(SHIPPED / "local-demo.yaml")
    other = demo.nodes["n0"].model_copy(update={"address": "127.0.0.2"})
    both = demo.model_copy(update={"nodes": {**demo.nodes, "n1": other}})
    with pytest.raises(UsageError, match="addresses of several nodes"):
        this_node(both, environ={}, host=HOST)
    assert this_node(both, "n1", {}, HOST) == "n1"


def test_the_interface_of_an_address() -> None:
    assert nic_of("10.9.0.2", HOST) == "bond0"
    assert nic_of("127.0.0.7", HOST) == "lo"
    assert nic_of("10.0.0.9", HOST) is None
    assert "127.0.0.1" in interfaces()["lo"]


def test_a_label_is_no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(address: str, family: int = socket.AF_INET) -> SimpleNamespace:
        return SimpleNamespace(family=family, address=address)

    seen = {"eth0:1": [entry("10.0.0.9")], "eth0": [entry("10.0.0.1"), entry("fe80::1", socket.AF_INET6)], "ib0": []}
    monkeypatch.setattr("psutil.net_if_addrs", lambda: seen)
    assert interfaces() == {"eth0": ("10.0.0.9", "10.0.0.1"), "ib0": ()}
    assert nic_of("10.0.0.9") == "eth0"


def test_a_program_is_beside_the_interpreter_then_in_path(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    beside = Path(sys.executable).parent
    assert program(("python", "-m", "x"), str(tmp_path)) == (str(beside / "python"), "-m", "x")
    assert program(("tool", "a"), str(tmp_path)) == (str(tool), "a")
    assert program((str(tool),)) == (str(tool),)


def test_a_missing_program_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is neither in .* nor in PATH; install it, or name its path under bin:"):
        program(("no-such-tool",), str(tmp_path))
    (tmp_path / "data").write_text("x")
    for path in (tmp_path / "gone", tmp_path / "data", tmp_path):
        with pytest.raises(UsageError, match="is no program; correct its path under bin:"):
            program((str(path),))


def test_importing_and_reading_is_quick(tmp_path: Path) -> None:
    code = "from yrnode.config.load import load; from yrnode.config.node import this_node; this_node(load(%r), 'n0')"
    argv = [sys.executable, "-c", code % str(SHIPPED / "local-demo.yaml")]
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, env=env, check=True, timeout=30)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # CPU seconds, which a busy machine hardly changes: 0.22 here, once the first run has written the bytecode.
    assert min(spent) < 0.6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cluster: a\n", DEFAULT_RUN_DIR),
        ("cluster: a\nrun_dir: /x/run\n", Path("/x/run")),
        ("run_dir: ./run  # here\n", Path("/b/run")),
        # what a look at the text cannot tell for sure
        ("{cluster: a, run_dir: /x}\n", None),
        ("run_dir: /x\nnodes: {n0: {run_dir: /y}}\n", None),
        ("nodes:\n  n0:\n    run_dir: /y\n", None),
        ('run_dir: "/x y"\n', None),
        ("run_dir:\n  /x\n", None),
        ("run_dir: &a /x\n", None),
        ("# run_dir: /x\n", None),
    ],
)
def test_a_look_at_the_text(text, expected):
    assert run_dir_of(text, Path("/b")) == expected


def test_a_quick_look(tmp_path, monkeypatch):
    file = tmp_path / "c.yaml"
    assert quick_run_dir(str(file), {}) is None, "it was named, and is not there"
    assert quick_run_dir(None, {"YRNODE_CONFIG": str(file)}) is None
    file.write_text("run_dir: ./r\n")
    assert quick_run_dir(str(file), {}) == tmp_path / "r"
    file.write_bytes(b"run_dir: \xff\n")
    assert quick_run_dir(str(file), {}) is None
    monkeypatch.setattr("yrnode.config.files.DEFAULT_FILE", str(tmp_path / "none"))
    assert quick_run_dir(None, {}) == DEFAULT_RUN_DIR
