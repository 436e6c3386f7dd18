"""CANN and the driver (HDK), by the files that their installers leave. Unverified on hardware: the layout is the
public documents'."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from yrnode.preflight import npus
from yrnode.preflight.finding import UNVERIFIED, Finding, Look, blocker, good, not_here, warning
from yrnode.preflight.versions import at_least

CANN, DRIVER = "CANN", "driver"
LEAST_CANN, LEAST_DRIVER, LEAST_DRIVER_H2D = "8.5.0", "25.2.3", "25.5.0"
HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
PLACES = ("/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest")
DRIVER_INFO = "/usr/local/Ascend/driver/version.info"


def look(at: Look) -> list[Finding]:
    h2d = bool(at.host.cluster.datasystem.remote_h2d)
    found, npu = versions(at.root, at.host.engine_env), npus.present(at)
    return [judge_cann(found.get(CANN, ""), npu), judge_driver(found.get(DRIVER, ""), npu, h2d)]


def versions(root: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Of CANN and the driver, as far as their files are there and say it."""
    homes = [root / home.lstrip("/") for home in (*(env.get(name, "") for name in HOMES), *PLACES) if home]
    found = {CANN: _first(homes), DRIVER: driver_version(_text(root / DRIVER_INFO.lstrip("/")))}
    return {name: version for name, version in found.items() if version}


def _first(homes: list[Path]) -> str:
    machine = f"{os.uname().machine}-linux"
    for home in homes:
        for file in (machine, "."):
            if version := toolkit_version(_text(home / file / "ascend_toolkit_install.info")):
                return version
        if version := cfg_version(_text(home / "version.cfg")):
            return version
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def toolkit_version(text: str) -> str:
    """From ascend_toolkit_install.info: `version=8.5.0`. Empty where it is not said."""
    return _values(text).get("version", "")


def driver_version(text: str) -> str:
    """From the driver's version.info: `Version=25.2.3`, or package_version where that is all."""
    values = _values(text)
    return values.get("version", "") or values.get("package_version", "")


def cfg_version(text: str) -> str:
    """From version.cfg: `toolkit_running_version=[7.8.0.2.212:8.5.0]`. Empty where it is not said."""
    values = _values(text)
    for name in ("toolkit_running_version", "runtime_running_version"):
        for part in values.get(name, "").strip("[]").split(","):
            if ":" in part:
                return part.rpartition(":")[2].strip("] ")
    return ""


def _values(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}


def judge_cann(version: str, npu: bool) -> Finding:
    cure = f"use an image or toolkit with CANN {LEAST_CANN} or later"
    return _judge(CANN, version, LEAST_CANN, npu, cure)


def judge_driver(version: str, npu: bool, h2d: bool) -> Finding:
    least = LEAST_DRIVER_H2D if h2d else LEAST_DRIVER
    cure = f"install HDK {least} or later on the host" + (", or remove datasystem.remote_h2d" if h2d else "")
    return _judge(DRIVER, version, least, npu, cure)


def _judge(name: str, version: str, least: str, npu: bool, cure: str) -> Finding:
    needed = f"{least} or later ({UNVERIFIED})"
    if not npu:
        return not_here(name, f"no NPU{f', though {version} is there' if version else ''}")
    if not version:
        return warning(
            name, "its version is not to be found", needed, f"mount its files into the container, or {cure}"
        )
    match at_least(version, least):
        case True:
            return good(name, version, needed)
        case False:
            return blocker(name, version, needed, cure)
        case _:
            return warning(name, f"{version}, which is not understood", needed, cure)
