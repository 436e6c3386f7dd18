"""What Ascend's own tools and files say, on text in their public layout: nothing of it has met a real NPU here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.preflight.build import CLUSTER, look, verdicts
from yrnode.preflight import ascend, links, npus
from yrnode.preflight.asking import Answer

HEAD = """+------------------------------------------------------------------------------------------------+
| npu-smi 25.2.3                   Version: 25.2.3                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
"""
RULE = "+===========================+===============+====================================================+\n"
USERS = """+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
"""
A2 = (
    HEAD
    + "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
    + RULE
    + """| 0     910B3               | OK            | 93.6        40                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3162 / 65536         |
"""
    + RULE
    + """| 1     910B3               | Alarm         | 91.8        41                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          61201/ 65536         |
"""
    + RULE
    + USERS
    + RULE
    + "| No running processes found in NPU 0                                                            |\n"
    + RULE
    + "| 1       0                 | 20480         | VLLMWorker_TP            | 58039                   |\n"
    + RULE
)
A3 = (
    HEAD
    + "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
    + RULE
    + """| 0     Ascend910           | OK            | 166.9       38                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3143 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           37                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2887 / 65536         |
"""
    + RULE
    + """| 1     Ascend910           | OK            | 162.1       37                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3130 / 65536         |
+------------------------------------------------------------------------------------------------+
| 1     Ascend910           | Warning       | -           37                0    / 0             |
| 1     3                   | 0000:9B:00.0  | 0           0    / 0          62498/ 65536         |
"""
    + RULE
    + USERS
    + RULE
    + "| 1       1                 | 845053        | python                   | 59656                   |\n"
    + RULE
)


def test_a_card_with_one_chip_is_a_device() -> None:
    found = npus.parse(A2)
    assert [(d.number, d.name, d.health, d.used_mb, d.total_mb) for d in found.values()] == [
        (0, "910B3", "OK", 3162, 65536),
        (1, "910B3", "Alarm", 61201, 65536),
    ]
    assert [d.processes for d in found.values()] == [(), ("VLLMWorker_TP (pid 20480)",)]


def test_a_card_with_two_chips_is_two_devices() -> None:
    found = npus.parse(A3)
    assert [(n, d.card, d.chip, d.health) for n, d in found.items()] == [
        (0, 0, 0, "OK"),
        (1, 0, 1, "OK"),
        (2, 1, 0, "OK"),
        (3, 1, 1, "Warning"),
    ]
    assert [d.processes for d in found.values()] == [(), (), (), ("python (pid 845053)",)]


@pytest.mark.parametrize(
    "text", ["", "dcmi module initialize failed. ret is -8005", HEAD, A3.replace("|", "!"), "\n|||\n"]
)
def test_what_is_no_table_has_no_devices(text: str) -> None:
    assert npus.parse(text) == {}


def asked(text: str, devices: dict[int, float], *, runs: bool = False) -> list[tuple[str, str]]:
    return [(f.verdict.value, f.found) for f in npus.judge_answer(Answer(text), devices, runs)]


def test_devices_are_judged() -> None:
    assert asked(A3, {0: 0.9, 1: 0.9}) == [("good", "2 devices (Ascend910), healthy, their memory free")]
    assert asked(A3, {2: 0.9, 3: 0.9}) == [
        ("warning", "device 3 is Warning"),
        ("warning", "device 3: 62498 of 65536 MB used by python (pid 845053)"),
    ]
    # this node's own ranks have it
    assert asked(A3, {3: 0.9}, runs=True) == [("warning", "device 3 is Warning")]
    # a device that only the worker uses needs no free memory
    assert asked(A3, {3: 0.0}) == [("warning", "device 3 is Warning")]
    assert asked(A2, {0: 0.9, 7: 0.9}) == [("warning", "npu-smi shows devices 0, 1, not 7")]
    assert asked(A2, {0: 0.9, 6: 0.9, 7: 0.9}) == [("blocker", "npu-smi shows devices 0, 1, not 6, 7")]
    assert asked(A2, {1: 0.0}) == [("blocker", "device 1 is Alarm")]
    # more than is left beside what the driver itself takes
    assert asked(A2, {0: 0.97})[0][0] == "warning"
    (found,) = npus.judge_answer(Answer("", "exit code 255: no device"), {0: 0.9}, False)
    assert (found.verdict, found.found) == ("warning", "npu-smi info: exit code 255: no device")


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (Answer("link status: UP\n"), "good", "1 links up"),
        (Answer("link status: DOWN\n"), "warning", "device 4: DOWN"),
        (Answer("", "exit code 1: hccn tool is busy"), "warning", "device 4: exit code 1: hccn tool is busy"),
        (Answer("what?"), "warning", "device 4: not understood"),
    ],
)
def test_links(answer: Answer, verdict: str, words: str) -> None:
    found = links.judge({4: answer})
    assert (found.verdict, found.found) == (verdict, words)


TOOLKIT = """package_name=Ascend-cann-toolkit
version={}
innerversion=V100R001C23SPC001B231
compatible_version=[V100R001C15],[V100R001C18]
arch=aarch64
os=linux
path=/usr/local/Ascend/cann-8.5.0/aarch64-linux
"""
CFG = """# version: 1.0
runtime_running_version=[7.7.0.1.231:8.2.RC1]
toolkit_running_version=[7.8.0.2.212:8.5.0]
toolkit_upgrade_version=[7.8.0.2.212:8.5.0]
"""
DRIVER = """Version={}
ascendhal_version=7.35.23
aicpu_version=1.0
Innerversion=V100R001C23SPC006B220
compatible_version_fw=[7.0.0,7.7.99]
package_version=25.2.3
"""


def test_version_files() -> None:
    assert ascend.toolkit_version(TOOLKIT.format("8.3.RC1")) == "8.3.RC1"
    assert ascend.cfg_version(CFG) == "8.5.0"
    assert ascend.cfg_version("runtime_running_version=[7.7.0.1.231:8.2.RC1]\n") == "8.2.RC1"
    assert ascend.driver_version(DRIVER.format("25.5.0")) == "25.5.0"
    assert ascend.driver_version("package_version=25.2.3\n") == "25.2.3"
    for read in (ascend.toolkit_version, ascend.cfg_version, ascend.driver_version):
        assert read("") == read("\x00\n= =\n# version=1\n") == ""


@pytest.mark.parametrize(
    ("version", "npu", "verdict"),
    [
        ("8.5.0", True, "good"),
        ("8.3.RC1", True, "blocker"),
        ("8.3.RC1", False, "not here"),
        ("", True, "warning"),
        ("", False, "not here"),
        ("C99", True, "warning"),
    ],
)
def test_cann(version: str, npu: bool, verdict: str) -> None:
    found = ascend.judge_cann(version, npu)
    assert found.verdict == verdict
    assert (verdict == "not here") or "unverified on hardware" in found.needed


@pytest.mark.parametrize(
    ("version", "h2d", "verdict"),
    [
        ("25.2.3", False, "good"),
        ("25.2.3", True, "blocker"),
        ("25.5.0", True, "good"),
        ("25.0.rc1", False, "blocker"),
    ],
)
def test_driver(version: str, h2d: bool, verdict: str) -> None:
    assert ascend.judge_driver(version, True, h2d).verdict == verdict


def test_the_files_of_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npus, "SEARCHED", "/nowhere")
    assert verdicts(ascend.look(look(tmp_path, root=tmp_path))) == ["not here", "not here"]
    home = tmp_path / "usr/local/Ascend"
    latest = home / "ascend-toolkit/latest" / f"{os.uname().machine}-linux"
    latest.mkdir(parents=True)
    (latest / "ascend_toolkit_install.info").write_text(TOOLKIT.format("8.2.RC1"))
    (home / "driver").mkdir()
    (home / "driver/version.info").write_text(DRIVER.format("25.2.3"))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci0").write_text("")
    found = ascend.look(look(tmp_path, root=tmp_path))
    assert [(f.verdict.value, f.found) for f in found] == [("blocker", "8.2.RC1"), ("good", "25.2.3")]
    # the newer place comes first, and before both what the environment names
    (home / "cann").mkdir()
    (home / "cann/version.cfg").write_text(CFG)
    assert ascend.versions(tmp_path, {})["CANN"] == "8.5.0"
    own = tmp_path / "opt/cann"
    own.mkdir(parents=True)
    (own / "ascend_toolkit_install.info").write_text(TOOLKIT.format("9.0.0"))
    assert ascend.versions(tmp_path, {"ASCEND_HOME_PATH": "/opt/cann"})["CANN"] == "9.0.0"


TWO = CLUSTER.replace(
    "nodes: {n0: {address: 127.0.0.1}}", "nodes: {n0: {address: 127.0.0.1}, n1: {address: 127.0.0.2}}"
)


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_tools_are_asked(tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    (tmp_path / "a3").write_text(A3)
    tool(bin_, "npu-smi", f'[ "$1" = info ] && /bin/cat {tmp_path}/a3')
    tool(bin_, "hccn_tool", '[ "$*" = "-i 2 -link -g" ] && echo "link status: DOWN" || echo "link status: UP"')
    here = look(tmp_path, TWO, root=tmp_path, path=str(bin_))
    assert [f.found for f in npus.look(here)] == [
        "device 3 is Warning",
        "device 3: 62498 of 65536 MB used by python (pid 845053)",
    ]
    assert [f.found for f in links.look(here)] == ["device 2: DOWN"]
    # one node alone reaches nobody by them
    assert verdicts(links.look(look(tmp_path, root=tmp_path, path=str(bin_)))) == ["not here"]


def test_a_host_without_npus_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npus, "SEARCHED", "/nowhere")
    here = look(tmp_path, TWO, root=tmp_path)
    assert verdicts([*npus.look(here), *links.look(here), *ascend.look(here)]) == ["not here"] * 4
    # devices without the tool
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci0").write_text("")
    (found,) = npus.look(here)
    assert (found.verdict, "mount npu-smi" in found.cure) == ("warning", True)
    assert verdicts(links.look(here)) == ["warning"]
