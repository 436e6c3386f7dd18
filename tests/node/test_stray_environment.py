"""Variables that somebody forgot in the environment: on the real parts, none of them reaches a component unasked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import ETCD_34, ETCD_35
from tests.support.node import BIN, YrNode, cluster_text, yrnode
from yrnode.process import table

LINK = "tcp://10.0.0.2:8000"
STRAYS = {
    "ETCD_NAME": "x",
    "ETCD_DATA_DIR": "/tmp/yrt-never",
    "ETCD_LISTEN_CLIENT_URLS": "http://127.0.0.1:1",
    "ETCDCTL_ENDPOINTS": "http://127.0.0.1:1",
    # what Kubernetes sets in every container for services of these names
    "ETCD_PORT": "tcp://10.0.0.1:2379",
    "ETCD_SERVICE_HOST": "10.0.0.1",
    "VLLM_PORT": LINK,
    "VLLM_SERVICE_PORT": "8000",
}
SCRIPT = "export ETCD_CLIENT_PORT=35440 ETCD_IP=10.0.0.7 VLLM_PORT=27000\n"


def environ(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    return dict(entry.partition("=")[::2] for entry in raw.split("\0") if "=" in entry)


def check(node: YrNode, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [str(BIN / "yrnode"), "check", "--config", str(node.config)]
    return subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=30, check=False)


def test_none_of_the_callers_is_inherited_and_what_a_script_sets_goes_to_the_ranks() -> None:
    with yrnode(cluster_text(more="env_from: [./set.sh]"), start=False) as node:
        (node.dir / "set.sh").write_text(SCRIPT)
        done = check(node, STRAYS)
        assert done.returncode == 0
        # VLLM_PORT is not lost: the script sets it
        names = ", ".join(sorted(STRAYS.keys() - {"VLLM_PORT"}))
        assert f"variables of yrnode's own environment are dropped: {names}; " in done.stdout
        assert "env_from sets ETCD_CLIENT_PORT, ETCD_IP: " in done.stdout
        assert LINK not in done.stdout, "values may be secrets"

        node.start(STRAYS)
        node.wait_ready()
        pids = node.pids()
        scripted = {"ETCD_CLIENT_PORT": "35440", "ETCD_IP": "10.0.0.7", "VLLM_PORT": "27000"}
        for name, pid in pids.items():
            own = [p.pid for p in table.scan() if p.sid == pid and p.state not in "ZX"]
            assert pid in own
            for one in own:
                env = environ(one)
                found = {k: v for k, v in env.items() if k in STRAYS or k in scripted}
                assert found == (scripted if name.startswith("rank/") else {}), (name, one)
        assert not Path(STRAYS["ETCD_DATA_DIR"]).exists()
        assert (node.dir / "state/etcd/member").is_dir()
        assert [e for e in node.events() if e["what"] in ("stop", "give-up", "held-up")] == []


@pytest.fixture
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(ranks=1), start=False) as node:
        yield node


MODEL = "    model: demo"
WRITTEN = {
    "env": ("api: ", "env:\n  ENTRY\napi: "),
    "nodes.n0.env": ("{address: 127.0.0.1}", "{address: 127.0.0.1, env: { ENTRY }}"),
    "groups.serve.env": (MODEL, f"{MODEL}\n    env:\n      ENTRY"),
    "groups.serve.nodes.n0.env": (MODEL, f"{MODEL}\n    nodes:\n      n0: {{env: {{ ENTRY }}}}"),
}
"""By key of the file: what is replaced to write a variable there."""


@pytest.mark.parametrize("key", WRITTEN)
@pytest.mark.parametrize("entry", ["ETCD_NAME: x", "ETCDCTL_API: 3", f'VLLM_PORT: "{LINK}"'])
def test_what_the_file_says_and_cannot_work_is_refused_by_name_and_line(node: YrNode, key: str, entry: str) -> None:
    old, new = WRITTEN[key]
    text = node.config.read_text()
    assert old in text
    text = text.replace(old, new.replace("ENTRY", entry))
    node.config.write_text(text)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if entry in line)
    name = entry.partition(":")[0]
    for verb in ("check", "run"):
        done = node.cli(verb)
        assert done.returncode == 2, done
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith(f"{node.config}:{number}: {key}.{name}: "), line
    assert node.left() == []
    assert [p.name for p in node.dir.iterdir()] == [node.config.name]


def test_what_a_script_sets_and_cannot_work_is_refused_by_script_and_line(node: YrNode) -> None:
    script = node.dir / "set.sh"
    script.write_text(f"# of the platform\nexport VLLM_PORT={LINK}\n")
    node.config.write_text(node.config.read_text() + "\nenv_from: [./set.sh]\n")
    for verb in ("check", "run"):
        done = node.cli(verb)
        assert done.returncode == 2, done
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith(f'env_from: {script}:2: VLLM_PORT is "{LINK}"')
    assert node.left() == []


@pytest.mark.parametrize("binary", [ETCD_35, ETCD_34], ids=["3.5", "3.4"])
def test_an_etcd_that_gets_one_all_the_same_is_not_tried_again(binary: Path) -> None:
    if not binary.exists():
        pytest.skip(f"no {binary}")
    with yrnode(cluster_text(ranks=1, bin_=f", etcd: [env, ETCD_NAME=x, {binary}]")) as node:
        node.wait("etcd given up", lambda: node.component("etcd").get("state") == "failed", 30)
        etcd = node.component("etcd")
        for words in ("configuration", "not retried", "conflicting environment variable", "ETCD_NAME"):
            assert words in etcd["reason"]
        assert etcd["last_failure"]["reason"] == "configuration"
        moves = [e["what"] for e in node.events() if e["target"] == "etcd"]
        assert moves == ["clean", "start", "stop", "give-up"]
        assert node.component("worker")["waiting_for"] == ["etcd (failed)", "store (unavailable)"]
        assert node.stop() == 0
