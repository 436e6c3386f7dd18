"""`yrnode run` with a real `vllm serve` on CPU. Slow: needs the lab of `make test-vllm`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest

from tests.support import vllm
from tests.support.node import BIN
from tests.support.vllm import RealNode
from yrnode.process import table

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lab() -> dict[str, str]:
    return vllm.lab_env()


@pytest.fixture(scope="module")
def node(lab: dict[str, str]) -> Iterator[RealNode]:
    with vllm.running(vllm.real(lab)) as node:
        yield node


def test_it_serves_and_verify_says_that_there_is_no_external_cache(node: RealNode) -> None:
    done = node.cli("verify", "-o", "json", timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["completion"] is True
    assert report["external_cache_hits"] == "not configured"
    assert report["ranks"]["rank/serve/0"]["local_hits"] > 0
    print(f"\nreal vLLM ready {node.component('rank/serve/0')['ready_seconds']} s after its start")


def test_the_mark_is_in_every_process_of_the_rank(node: RealNode) -> None:
    leader = node.component("rank/serve/0")["pid"]
    members = vllm.session(leader)
    names = {p.comm for p in members}
    assert any("EngineCor" in n for n in names)
    assert any("Worker" in n for n in names)
    home = str(node.dir / "state")
    unmarked = [str(p) for p in members if table.marks(p.pid)[1] != home]
    assert unmarked == []


def test_stop_is_clean(node: RealNode) -> None:
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
