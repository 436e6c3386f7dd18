"""All checks of this host. Nothing is changed by looking."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from yrnode.components.host import Host
from yrnode.model.spec import ComponentSpec
from yrnode.preflight import (
    ascend,
    clock,
    copying,
    datadirs,
    disks,
    hccl,
    memory,
    models,
    network,
    pages,
    places,
    ports,
    programs,
    ranges,
    seed,
    weights,
)
from yrnode.preflight.finding import Finding, Look, Verdict, good, refused, warning

Check = Callable[[Look], list[Finding]]
QUICK_S, ALL_S = 2.0, 8.0
"""What checks get together. One that a dead mount or a driver holds up is told and left behind."""
QUICK: Mapping[str, Check] = {
    "page size": pages.look,
    "memory": memory.look,
    "port range": ranges.look,
    "HCCL's ports": hccl.look,
    "network": network.look,
    "clock": clock.look,
    "disks": disks.look,
    "hash seed": seed.look,
    "copying": copying.look,
    "models": weights.look,
    "CANN and driver": ascend.look,
}
"""Those that look at files and at the kernel alone."""
_GOOD = {
    "directories": "can be used",
    "programs": "all there",
    "models": "can be read",
    "etcd data": "this node's own, or none yet",
    "ports": "free",
}


def problems(host: Host, specs: Sequence[ComponentSpec]) -> list[str]:
    """What would make the start itself fail, one line each with the cure. Empty when nothing stands in the way."""
    return [finding.line for finding in starting(host, specs) if finding.verdict is Verdict.BLOCKER]


def starting(host: Host, specs: Sequence[ComponentSpec]) -> list[Finding]:
    """The checks that `yrnode run` refuses by."""
    listed = list(specs)
    # where the directories cannot be used, the rest cannot be judged
    if unusable := places.problems(host, listed):
        return refused("directories", unusable)
    lines = {
        "directories": [],
        "programs": programs.problems(host),
        "models": models.problems(host),
        "etcd data": datadirs.problems(host, listed),
        "ports": ports.problems(host, listed),
    }
    return [f for name, said in lines.items() for f in refused(name, said) or [good(name, _GOOD[name])]]


def admission(host: Host, specs: Sequence[ComponentSpec]) -> tuple[list[str], list[str]]:
    """What `yrnode run` refuses with, and what it only says, blockers first; a line each, with the cure."""
    if unfit := problems(host, specs):
        return unfit, []
    runs = places.runs(host)
    found = together(QUICK, Look(host, specs, runs), QUICK_S)
    said = [f for verdict in (Verdict.BLOCKER, Verdict.WARNING) for f in found if f.verdict is verdict]
    # what runs here must be taken over, whatever this host has come to look like
    refusing = [f for f in said if f.refuses and not runs]
    return [f.line for f in refusing], [f.line for f in said if f not in refusing]


def everything(at: Look, daemon: Check | None = None) -> list[Finding]:
    """All checks, in ALL_S seconds at most. `daemon`: what the yrnode that runs here tells of the other nodes; where
    there is none, the store does."""
    # those that ask programs or other nodes; a daemon that starts needs none of them
    from yrnode.preflight import binaries, links, nodes, npus, packages

    checks: dict[str, Check] = {
        **QUICK,
        "versions": binaries.look,
        "packages": packages.look,
        "NPUs": npus.look,
        "NPU links": links.look,
        nodes.NAME: daemon or nodes.look,
    }
    if daemon is None:
        # what a yrnode that runs holds itself would only look taken
        checks = {"start": lambda at: starting(at.host, at.specs), **checks}
    return together(checks, at, ALL_S)


def together(checks: Mapping[str, Check], at: Look, seconds: float) -> list[Finding]:
    """Run them at once, each in a thread; what they found, in the order of `checks`."""
    found: dict[str, list[Finding]] = {}

    def run(name: str, check: Check) -> None:
        try:
            found[name] = check(at)
        except Exception as e:
            # a fault of ours in one of them takes no other one away
            found[name] = [warning(name, f"the check itself failed: {e!r}", "", "please report it")]

    # no pool: its threads would hold up the interpreter's end
    threads = [threading.Thread(target=run, args=item, daemon=True) for item in checks.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer within {seconds:.0f} s"
    cure = "look for a mount or a driver that does not answer"
    return [f for name in checks for f in found.get(name, [warning(name, late, "", cure)])]
