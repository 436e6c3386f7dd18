"""What a worker's restart means for the serving groups of its node."""

from __future__ import annotations

from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import RUNNING, State
from yrnode.policy import memory


def evidence(g: GroupView, s: Snapshot) -> Cause | None:
    """Why the group must restart with the worker, though none of its own members has failed."""
    for c in s.components.values():
        found = memory.evidence(c, g, s) or _restarted(c, g, s)
        if found is not None:
            return found
    return None


def _restarted(c: ComponentView, g: GroupView, s: Snapshot) -> Cause | None:
    """Where the file says so: a member began before the worker that is ready now."""
    if not c.spec.takes_groups or c.state not in (State.READY, State.UNHEALTHY):
        return None
    members = [s.components[name] for name in g.members]
    if not any(m.state in RUNNING and m.began < c.began for m in members):
        return None
    last = f"the worker's last fault: {c.history[-1].cause}" if c.history else "no fault of the worker"
    return Cause(Reason.WORKER, f"{c.name} has restarted, and datasystem.on_worker_restart is group", last, c.name)
