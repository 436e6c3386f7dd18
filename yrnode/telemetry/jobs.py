"""What systemd is doing with our own unit, so that a SIGTERM can be told from a SIGTERM.

A stop and a restart send the same signal. systemd's list of jobs says which of them it is; no job means that somebody
sent the signal by hand.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

STOP = "stop"
TIMEOUT_S = 5.0
"""systemd answers late while it reads its units again; each reading takes 10 to 20 ms otherwise."""

_LIST = ("list-jobs", "--no-legend", "--plain", "--full")


@dataclass(frozen=True)
class Unit:
    """The unit that this process is the main process of. `user`: of a user's own manager."""

    name: str
    user: bool = False


def own_unit(
    environ: Mapping[str, str] = os.environ,
    cgroup: str | None = None,
    pid: int | None = None,
    ppid: int | None = None,
) -> Unit | None:
    """Our unit, None unless systemd itself started this very process.

    A shell below a service inherits INVOCATION_ID and the control group, and nobody restarts what runs in it: the pid
    in SYSTEMD_EXEC_PID must be ours. Before 248 systemd did not give it; there our parent must be PID 1.
    """
    if not environ.get("INVOCATION_ID"):
        return None
    started = environ.get("SYSTEMD_EXEC_PID")
    if started is None:
        if (os.getppid() if ppid is None else ppid) != 1:
            return None
    elif started != str(os.getpid() if pid is None else pid):
        return None
    return unit_of(_own_cgroup() if cgroup is None else cgroup)


def _own_cgroup() -> str:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def unit_of(cgroup: str) -> Unit | None:
    """The service in the text of /proc/PID/cgroup, in the unified hierarchy or else in systemd's own."""
    for hierarchy in ("0::", ":name=systemd:"):
        for line in cgroup.splitlines():
            _, found, path = line.partition(hierarchy)
            parts = path.split("/") if found else []
            # the innermost one: a user's services are below user@UID.service, delegated groups below ours
            services = [p for p in parts if p.endswith(".service")]
            if services and not services[-1].startswith("user@"):
                return Unit(services[-1], any(p.startswith("user@") for p in services))
    return None


def parse(listing: str, unit: str) -> str | None:
    """The kind of the unit's job in what `systemctl list-jobs` prints; None where it has none.

    Each line holds the job's number, unit, kind and state.
    """
    for line in listing.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].isdecimal() and words[1] == unit:
            return words[2]
    return None


def job_of(unit: Unit, timeout_s: float = TIMEOUT_S) -> str | None:
    """The kind of the unit's present job, such as stop, restart or start; None for no job or no answer in time.

    Blocks for up to `timeout_s`. Never raises.
    """
    argv = ["systemctl", *(["--user"] if unit.user else []), *_LIST]
    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    try:
        out, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # not waited for: one that cannot be killed must not hold us up
        child.kill()
        return None
    finally:
        if child.stdout is not None:
            child.stdout.close()
    return parse(out.decode("utf-8", "replace"), unit.name)
