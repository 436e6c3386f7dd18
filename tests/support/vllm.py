"""A node whose ranks are real `vllm serve` on CPU: the lab of `make test-vllm`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import YrNode, cluster_text
from yrnode.process import table
from yrnode.process.instance import SHM_NAMES, mapped_shm

LAB = os.environ.get("YRNODE_VLLM_LAB", "")
READY_S = 600.0
"""For a group of two ranks on two busy cores."""
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
_NOT_FOR_RANKS = ("PATH", "MODELS", "COMMON", "PWD", "SHLVL", "_")
ARGS = {"max-model-len": 512, "max-num-seqs": 4, "max-num-batched-tokens": 512, "enforce-eager": True}


def lab_env() -> dict[str, str]:
    """What the lab's env.sh sets."""
    if not LAB:
        pytest.skip("YRNODE_VLLM_LAB is not set; use make test-vllm")
    script = ["bash", "-c", ". $0/env.sh; env -0", LAB]
    done = subprocess.run(script, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    return dict(w.split("=", 1) for w in done.stdout.split("\0") if "=" in w)


def real(
    lab: dict[str, str],
    *,
    model: str = "tiny-dense",
    ranks: int = 1,
    args: dict[str, Any] | None = None,
    more: str = "",
) -> str:
    """The test cluster with real ranks; more than one needs `tiny-moe`. `more`: lines of the group, indented by 4."""
    return with_vllm(cluster_text(ranks=ranks), lab, model=model, args=args, more=more)


def with_vllm(
    text: str, lab: dict[str, str], *, model: str, args: dict[str, Any] | None = None, more: str = ""
) -> str:
    """A test's cluster file with the stand-in's ranks replaced by real ones."""
    env = ", ".join(f"{k}: {json.dumps(v)}" for k, v in lab.items() if k not in _NOT_FOR_RANKS)
    words = ", ".join(f"{k}: {json.dumps(v)}" for k, v in {**ARGS, "dtype": "float32", **(args or {})}.items())
    text = text.replace("vllm: [python, -m, yrnode.demo.engine]", f"vllm: {LAB}/venv/bin/vllm")
    text = text.replace("model: demo\n", f"model: {lab['MODELS']}/{model}\n", 1)
    text = text.replace("served-model-name: demo", f"served-model-name: tiny, {words}")
    group = f"    env: {{{env}}}\n    start_timeout: 10m\n{more}"
    # on a few cores the engines leave the datasystem little: that is not what is tested
    return text.replace("    kv_connector: {ascend_store: {}}\n", group) + "checks: {worker.kv: {timeout: 15s}}\n"


def url(node: YrNode, rank: str) -> str:
    return node.component(rank)["checks"]["health"]["evidence"].partition("/health")[0]


def ask(base: str, seconds: float, **body: Any) -> dict[str, Any]:
    """A completion; each prompt is another one."""
    request = {"model": "tiny", "prompt": f"{time.time_ns()}", "max_tokens": 4, "ignore_eos": True, **body}
    headers = {"Content-Type": "application/json"}
    call = urllib.request.Request(f"{base}/v1/completions", json.dumps(request).encode(), headers)
    with _OPEN(call, timeout=seconds) as answer:
        return json.load(answer)


def page(base: str) -> bytes:
    with _OPEN(f"{base}/metrics", timeout=10) as answer:
        return answer.read()


def series(text: bytes) -> dict[str, str]:
    """vLLM's series of a page of metrics, without histograms' buckets."""
    lines = [x for x in text.decode().splitlines() if x.startswith("vllm:") and "_bucket{" not in x]
    return dict(x.rpartition(" ")[::2] for x in lines)


def load(base: str) -> int:
    with _OPEN(f"{base}/load", timeout=10) as answer:
        return json.load(answer)["server_load"]


def session(leader: int) -> list[table.Proc]:
    return [p for p in table.scan() if p.sid == leader and p.state not in "ZX"]


def member(node: YrNode, rank: str, title: str) -> table.Proc:
    """The rank's process whose title holds this; `vllm serve` itself where it is empty."""
    leader = node.pids()[rank]
    return next(p for p in session(leader) if (title in p.comm if title else p.pid == leader))


def check(node: YrNode, rank: str, name: str) -> tuple[str, str]:
    found = node.component(rank)["checks"][name]
    return found["verdict"], found["evidence"]


def generation(node: YrNode) -> int:
    return node.status()["groups"]["serve"]["generation"]


class Shm:
    """While the block runs: the files in /dev/shm that processes of this node were seen to map.

    Others on this machine may run engines of their own, so the folder's content alone says nothing.
    """

    def __init__(self, node: YrNode) -> None:
        self.ours: set[str] = set()
        self.leaders: set[int] = set()
        """Sessions that are the node's although their processes show no mark."""
        self._home = str(node.dir / "state")
        self._others = _in_shm()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._done.wait(0.3):
            self._look()

    def _look(self) -> None:
        new = _in_shm() - self.ours - self._others
        for proc in table.scan() if new else ():
            if proc.sid in self.leaders or table.marks(proc.pid)[1] == self._home:
                with contextlib.suppress(OSError):
                    self.ours |= mapped_shm(proc.pid) & new

    def left(self) -> set[str]:
        """Those that are there although nobody maps them now."""
        found = self.ours & _in_shm()
        for proc in table.scan():
            with contextlib.suppress(OSError):
                found -= mapped_shm(proc.pid)
        return found

    def __enter__(self) -> Shm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


class RealNode(YrNode):
    shm: Shm


@contextlib.contextmanager
def running(text: str) -> Iterator[RealNode]:
    """The node with real ranks, ready."""
    node = RealNode(text)
    try:
        with Shm(node) as node.shm:
            node.start()
            began = time.monotonic()
            node.wait_ready(READY_S)
            print(f"\nreal ranks and all below ready after {time.monotonic() - began:.0f} s")
            yield node
    finally:
        node.close()


def _in_shm() -> set[str]:
    return {str(p) for p in Path("/dev/shm").iterdir() if str(p).startswith(SHM_NAMES)}
