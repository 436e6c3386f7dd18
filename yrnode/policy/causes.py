"""Why a component is in the state that it is in: which of the causes that are known of it counts now."""

from __future__ import annotations

from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import RUNNING, WITH_PROCESS, State
from yrnode.policy import component


def died(c: ComponentView) -> Cause | None:
    """The end of an instance that should run. Once it is being ended, its exit is no news."""
    return c.death if c.state in RUNNING else None


def current(c: ComponentView, s: Snapshot) -> Cause | None:
    """None before anything was decided about it."""
    if not component.wanted(c, s) and c.state not in WITH_PROCESS:
        group = s.groups.get(c.spec.group or "")
        unwanted = group.unwanted if group else c.unwanted
        return unwanted or c.cause
    if c.state is State.CLEANING and c.blocked:
        return c.blocked
    # that nothing is left says how far a stop has come, not why there was one
    gone = c.cause is not None and c.cause.reason is Reason.GONE
    return died(c) or (c.leaving if gone and c.leaving else c.cause)
