"""`yrnode run` with a real `vllm serve` on CPU. Slow: needs the lab of `make test-vllm`."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import BIN, YrNode, cluster_text, yrnode
from yrnode.process import table

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
LAB = os.environ.get("YRNODE_VLLM_LAB", "")


@pytest.fixture(scope="module")
def lab() -> dict[str, str]:
    """What the lab's env.sh sets."""
    if not LAB:
        pytest.skip("YRNODE_VLLM_LAB is not set; use make test-vllm")
    words = subprocess.run(
        ["bash", "-c", ". $0/env.sh; env -0", LAB],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    ).stdout.split("\0")
    return dict(w.split("=", 1) for w in words if "=" in w)


def real(lab: dict[str, str]) -> str:
    """The test cluster with one rank of a real vLLM and the tiny dense model."""
    text = cluster_text(ranks=1)
    kept = {k: v for k, v in lab.items() if k not in ("PATH", "MODELS", "COMMON", "PWD", "SHLVL", "_")}
    env = ", ".join(f"{k}: {json.dumps(v)}" for k, v in kept.items())
    args = "max-model-len: 512, max-num-seqs: 4, max-num-batched-tokens: 512, enforce-eager: true, dtype: float32"
    text = text.replace("vllm: [python, -m, yrnode.demo.engine]", f"vllm: {LAB}/venv/bin/vllm")
    text = text.replace("model: demo\n", f"model: {lab['MODELS']}/tiny-dense\n", 1)
    text = text.replace("served-model-name: demo", f"served-model-name: tiny, {args}")
    return text.replace("    kv_connector: {ascend_store: {}}\n", f"    env: {{{env}}}\n    start_timeout: 10m\n")


@pytest.fixture(scope="module")
def node(lab: dict[str, str]) -> Iterator[YrNode]:
    with yrnode(real(lab)) as node:
        node.wait_ready(600)
        yield node


def test_it_serves_and_verify_says_that_there_is_no_external_cache(node: YrNode) -> None:
    done = node.cli("verify", "-o", "json", timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["completion"] is True
    assert report["external_cache_hits"] == "not configured"
    assert report["ranks"]["rank/serve/0"]["local_hits"] > 0
    print(f"\nreal vLLM ready {node.component('rank/serve/0')['ready_seconds']} s after its start")


def test_the_mark_is_in_every_process_of_the_rank(node: YrNode) -> None:
    leader = node.component("rank/serve/0")["pid"]
    members = [p for p in table.scan() if p.sid == leader and p.state not in "ZX"]
    names = {p.comm for p in members}
    assert any("EngineCor" in n for n in names)
    assert any("Worker" in n for n in names)
    home = str(node.dir / "state")
    unmarked = [str(p) for p in members if table.marks(p.pid)[1] != home]
    assert unmarked == []


def test_a_killed_engine_core_restarts_the_rank_without_leftovers(node: YrNode) -> None:
    before = node.pids()
    leader = before["rank/serve/0"]
    members = [p for p in table.scan() if p.sid == leader]
    shm = set(Path("/dev/shm").iterdir())
    core = next(p.pid for p in members if "EngineCor" in p.comm)
    began = time.monotonic()
    os.kill(core, signal.SIGKILL)
    node.wait("the death seen", lambda: node.component("rank/serve/0")["state"] != "ready", 60)
    seen = time.monotonic() - began
    cause = node.status()["groups"]["serve"]["cause"]
    assert seen < 2.0
    assert "EngineCor" in cause
    node.wait("ready again", lambda: (s := node.status())["ready"] and s["groups"]["serve"]["generation"] == 2, 600)
    print(
        f"\nEngineCore killed: seen after {seen:.1f} s, ready again after {time.monotonic() - began:.1f} s; {cause}"
    )
    after = node.pids()
    assert (after["etcd"], after["worker"]) == (before["etcd"], before["worker"])
    assert [str(p) for p in members if table.alive(p)] == []
    gone = {p for p in shm if not p.exists()}
    print(f"shared memory of the old instance: {len(gone)} files removed")
    assert node.cli("verify", timeout=120).returncode == 0


def test_stop_is_clean(node: YrNode) -> None:
    assert node.stop(120) == 0
    assert node.left() == []
    assert "Application shutdown complete" in (node.dir / "log/rank-serve-0.log").read_text(errors="replace")


def test_demo_with_a_model(lab: dict[str, str]) -> None:
    argv = [str(BIN / "yrnode"), "demo", "--once", "-o", "json", "--model", f"{lab['MODELS']}/tiny-dense", "--"]
    flags = [w for w in shlex.split(lab["COMMON"]) if w not in ("--served-model-name", "tiny")]
    done = subprocess.run(
        [*argv, *flags], capture_output=True, text=True, timeout=800, check=False, env={**os.environ, **lab}
    )
    assert done.returncode == 0, done
    result = json.loads(re.search(r"^\{.*\}$", done.stdout, re.MULTILINE)[0])
    assert result["ready"] is True
    assert result["verify"] == {"completion": True, "external_cache_hits": "not configured"}
    assert result["left_over"] == []
