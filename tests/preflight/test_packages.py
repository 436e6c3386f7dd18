"""What the ranks' Python has, and programs' versions: judged by tables, and asked of real programs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.preflight.build import CLUSTER, look, verdicts
from tests.support.etcd import ETCD_35
from yrnode.preflight import binaries, packages
from yrnode.preflight.asking import Answer, ask, ask_all
from yrnode.preflight.packages import Has, Uses
from yrnode.process import table

ALL = {"vllm": "0.18.1", "vllm-ascend": "0.18.0", "transformers": "5.2.0", "openyuanrong-datasystem": "0.7.6rc1"}
WHOLE = Has(ALL, "/x/yuanrong_backend.py", "")
NONE = Has(dict.fromkeys(ALL), False, "ModuleNotFoundError: No module named 'yr'")


def has(**versions: str | None) -> dict[str, str | None]:
    return {**ALL, **{name.replace("_", "-"): version for name, version in versions.items()}}


@pytest.mark.parametrize(
    ("found", "uses", "expected"),
    [
        (WHOLE, Uses(True, True, True, True), {}),
        (WHOLE, Uses(), {}),
        # a stand-in, and vLLM on CPU
        (NONE, Uses(), {"vllm": "not here"}),
        (NONE, Uses(real=True), {"vllm": "warning"}),
        (NONE, Uses(store=True), {"vllm": "not here", "vllm-ascend": "not here", "yr.datasystem": "blocker"}),
        (Has(ALL, False, None), Uses(store=True, npu=True), {}),
        (Has(has(vllm_ascend=None), False, ""), Uses(store=True, npu=True), {"vllm-ascend": "warning"}),
        (Has(ALL, None, ""), Uses(store=True, npu=True), {"vllm-ascend": "blocker"}),
        (Has(has(vllm_ascend="0.17.0"), "/x", ""), Uses(store=True), {"vllm-ascend": "warning"}),
        (Has(has(vllm_ascend="0.18.0rc1"), "/x", ""), Uses(store=True), {}),
        (Has(has(vllm_ascend="0.1.dev3+g1a2b"), "/x", ""), Uses(store=True), {}),
        (Has(has(transformers="4.57.1"), "/x", ""), Uses(glm5=True), {"transformers": "blocker"}),
        (Has(has(transformers="4.57.1"), "/x", ""), Uses(), {}),
        (Has(has(transformers=None), "/x", ""), Uses(glm5=True), {"transformers": "warning"}),
    ],
)
def test_packages(found: Has, uses: Uses, expected: dict[str, str]) -> None:
    judged = packages.judge(found, uses)
    assert {f.name: f.verdict.value for f in judged if f.verdict != "good"} == expected
    assert all(f.cure for f in judged if f.verdict in ("warning", "blocker"))


@pytest.mark.parametrize(
    ("text", "error", "sdk"),
    [
        ('{"versions": {}, "backend": false}\n{"datasystem": ""}\n', "", ""),
        ('hello\n7\n{"versions": {}, "backend": false}\n[1]\n{"datasystem": "no"}\n', "", "no"),
        # the import has taken Python with it
        ('{"versions": {}, "backend": false}\n', "", "the import ended Python: exit code -11: x"),
        ("", "exit code -11: x", None),
    ],
)
def test_what_the_program_inside_says(text: str, error: str, sdk: str | None) -> None:
    found, why = packages.read(Answer(text, "exit code -11: x"))
    assert (why, found.sdk) == (error, sdk)


def test_this_python_is_asked(tmp_path: Path) -> None:
    text = CLUSTER.replace("[python, -m, x]", f"[{sys.executable}, -m, x]")
    before = sorted(tmp_path.rglob("*"))
    found = {f.name: f for f in packages.look(look(tmp_path, text))}
    assert (found["yr.datasystem"].verdict, found["vllm"].verdict) == ("good", "not here")
    assert found["yr.datasystem"].found.startswith("0.")
    assert sorted(tmp_path.rglob("*")) == [*before, tmp_path / "cluster.yaml"]


def test_another_backend_needs_nothing_of_the_datasystem(tmp_path: Path) -> None:
    text = CLUSTER.replace("[python, -m, x]", f"[{sys.executable}, -m, x]")
    other = text.replace("ascend_store: {}", "ascend_store: {backend: mooncake}")
    assert {f.name for f in packages.look(look(tmp_path, text))} >= {"vllm-ascend", "yr.datasystem"}
    assert {f.name for f in packages.look(look(tmp_path, other))} == {"vllm"}


def test_a_backend_is_found_where_vllm_ascend_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "site/vllm_ascend/distributed/kv_transfer/kv_pool/ascend_store/backend"
    folder.mkdir(parents=True)
    # it must not be imported: that takes long, and an NPU
    (tmp_path / "site/vllm_ascend/__init__.py").write_text("raise SystemExit(3)")
    text = (
        CLUSTER.replace("[python, -m, x]", f"[{sys.executable}, -m, x]") + f"env: {{PYTHONPATH: {tmp_path}/site}}\n"
    )
    (without,) = (f for f in packages.look(look(tmp_path, text)) if f.name == "vllm-ascend")
    assert (without.verdict, "patch" in without.cure) == ("blocker", True)
    (folder / "yuanrong_backend.py").write_text("")
    assert "blocker" not in verdicts(packages.look(look(tmp_path, text)))


@pytest.mark.parametrize(("first", "python"), [("#!/bin/bash", ""), (f"#!{sys.executable}", sys.executable)])
def test_whose_python_it_is(tmp_path: Path, first: str, python: str) -> None:
    script = tmp_path / "vllm"
    script.write_text(f"{first}\n")
    script.chmod(0o755)
    here = look(tmp_path, CLUSTER.replace("[python, -m, x]", str(script)))
    assert packages.interpreter(here.host.cluster, None) == python
    if not python:
        assert verdicts(packages.look(here)) == ["not here"]


# programs


@pytest.mark.parametrize(
    ("version", "members", "verdict"),
    [
        ("3.5.1", 1, "warning"),
        ("3.5.0", 3, "blocker"),
        ("3.5.2", 3, "blocker"),
        ("3.5.3", 3, "good"),
        ("3.5.12", 5, "good"),
        ("3.4.23", 3, "good"),
        ("3.6.0", 3, "good"),
        ("3.5.0-rc.1", 3, "good"),
        ("none", 1, "warning"),
    ],
)
def test_etcds_version(version: str, members: int, verdict: str) -> None:
    answer = Answer(f"etcd Version: {version}\nGit SHA: e8732fb5f\nGo Version: go1.16.3\n")
    found = binaries.judge_etcd(answer, members)
    assert (found.verdict, found.found.startswith(version) or version == "none") == (verdict, True)


def test_programs_are_asked_for_their_versions(tmp_path: Path) -> None:
    text = CLUSTER.replace("bin: {", f"bin: {{etcd: {ETCD_35}, ")
    etcd, dscli = binaries.look(look(tmp_path, text))
    assert (etcd.verdict, dscli.verdict) == ("warning", "good")
    assert etcd.found.startswith("3.5.1")
    assert dscli.found.startswith("0.")
    external = CLUSTER + "etcd: {external: [http://127.0.0.9:2379]}\n"
    assert binaries.look(look(tmp_path, external))[0].verdict == "not here"


@pytest.mark.parametrize(
    ("argv", "text", "error"),
    [
        (["/bin/echo", "hello"], "hello\n", ""),
        (["/bin/sh", "-c", "echo out; echo why >&2; exit 3"], "out\n", "exit code 3: why"),
        (["/bin/pwd"], "/\n", ""),
        (["/nowhere/x"], "", "/nowhere/x: No such file or directory"),
    ],
)
def test_a_program_is_asked(argv: list[str], text: str, error: str) -> None:
    assert ask(argv) == Answer(text, error)


def test_one_that_hangs_ends_with_all_that_it_has_started() -> None:
    mark = f"yrnode-{os.getpid()}"
    script = f"sleep 60 & exec sleep 61 # {mark}"
    began = time.monotonic()
    env = {"PATH": os.defpath, "MARK": mark}
    answers = ask_all([["/bin/sh", "-c", script]] * 2, env, 0.3)
    assert time.monotonic() - began < 5
    assert {a.error for a in answers} == {"no answer within 0.3 s"}
    deadline = time.monotonic() + 5
    while left(mark):
        assert time.monotonic() < deadline, left(mark)
        time.sleep(0.01)


def left(mark: str) -> list[int]:
    found = []
    for proc in table.scan():
        try:
            with open(f"/proc/{proc.pid}/environ", "rb") as f:
                if f"MARK={mark}\0".encode() in f.read() and proc.state not in "ZX":
                    found.append(proc.pid)
        except OSError:
            continue
    return found
