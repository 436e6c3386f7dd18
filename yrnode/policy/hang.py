"""When a component is alive and of no use: a hang. Pure: tallies of its checks in, a cause out.

It always takes two witnesses. A file that stands still may be a full disk, a late answer may be a busy server, a
stopped process may be somebody's debugger for a moment: none of them alone restarts anything.
"""

from __future__ import annotations

from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Verdict

PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "etcd": (("process", "read"),),
    "worker": (("liveness", "process"), ("liveness", "kv")),
    "rank": (("process", "health"),),
    "router": (("process", "health"),),
}
"""By kind of component: a check beyond its threshold, and a second one that fails at present."""

NEEDS = {"liveness": "stale_s"}
"""A witness counts only with this fact: a file that cannot be written says nothing about its writer."""

MISSES = 2
"""Canaries out of time, for an engine that is not seen to be stopped."""
LOST = 3
"""Prompts that the cache holds, each waited for twice as long as the one before."""
NO_CANARY_S = 30.0
"""For a server that refuses canaries: a stopped engine whose requests have not moved for so long."""
CACHE_SETTLED_S = 60.0
"""Ranks wait for a cache that does not answer; for so long after its return that is not held against them."""


def hang(c: ComponentView, s: Snapshot) -> Cause | None:
    """Why the running instance hangs, if it does."""
    for first, second in PAIRS.get(c.spec.kind, ()):
        if _fails(c, second) and _stands(c, first) and _acts(c, first, second):
            text = f"hangs: checks {first} and {second} fail together"
            return Cause(Reason.HANG, text, f"{_said(c, first)}; {_said(c, second)}", c.name)
    if "canary" not in c.checks:
        return None
    # a headless rank has no numbers of its own: its head's progress is everybody's
    own = [k.name for k in c.spec.checks if k.name == "progress"]
    found = _engine(c, s) if _acts(c, "engine", "canary", *own) else None
    return _link(c, s) if found is None and _acts(c, "progress", "canary", "cache") else found


def _engine(c: ComponentView, s: Snapshot) -> Cause | None:
    missed, still_s = _fact(c, "canary", "missed"), _fact(c, "progress", "still_s")
    if _stands(c, "engine"):
        if missed:
            return _cause(c, s, "its processes are frozen", "engine", "canary")
        if _fact(c, "canary", "refused") and still_s >= NO_CANARY_S:
            return _cause(c, s, "its processes are frozen", "engine", "progress")
        return None
    if missed < MISSES or not still_s or _waits_for_the_cache(c, s):
        return None
    # one that waits for another rank uses no CPU time either: all of them must stand
    if all(_fact(m, "engine", "no_cpu") for m in _members(c, s)):
        return _cause(c, s, "its processes use no CPU time", "engine", "progress", "canary")
    if still_s >= _fact(c, "progress", "limit_s"):
        return _cause(c, s, f"no progress for {still_s:.0f} s", "progress", "canary", "engine")
    return None


def _link(c: ComponentView, s: Snapshot) -> Cause | None:
    """Several requests of a rank with an external cache do not finish, while short ones do.

    The second witness: prompts that the cache holds are lost too, or nothing else has moved for as long.
    """
    several_s, limit_s = _fact(c, "progress", "several_s"), _fact(c, "progress", "limit_s")
    if not several_s or several_s < limit_s or c.checks["canary"].result.verdict is not Verdict.OK:
        return None
    lost = _fact(c, "cache", "lost") >= LOST
    if not (lost or _fact(c, "progress", "stuck_s") >= limit_s) or _waits_for_the_cache(c, s):
        return None
    what = "requests with external hits do" if lost else "several requests do"
    text = f"{what} not finish for {several_s:.0f} s, short ones do: "
    here = [o for o in s.components.values() if any(k.name == "cache" for k in o.spec.checks)]
    workers = [o.name for o in s.components.values() if o.plane is Plane.CACHE]
    if len(here) > 1 and workers and all(_fact(o, "cache", "lost") for o in here):
        text, culprit = f"{text}on every rank of this node, so its worker is to blame", workers[0]
    else:
        text, culprit = f"{text}the rank's link to the cache is dead", c.name
    said = [f"{name}: {_said(c, name)}" for name in ("cache", "progress", "canary")]
    return Cause(Reason.HANG, text, "; ".join(said), culprit)


def _cause(c: ComponentView, s: Snapshot, why: str, *checks: str) -> Cause:
    said = [_said(c, name) for name in checks]
    said += [f"{m.name}: {_said(m, 'engine')}" for m in _members(c, s) if m.name != c.name]
    return Cause(Reason.HANG, f"the engine hangs: {why}", "; ".join(said), c.name)


def _members(c: ComponentView, s: Snapshot) -> list[ComponentView]:
    """The component's group on this node, itself included."""
    return [m for m in s.components.values() if m.name == c.name or (c.spec.group and m.spec.group == c.spec.group)]


def _waits_for_the_cache(c: ComponentView, s: Snapshot) -> bool:
    if not any(word.startswith("--kv-transfer-config") for word in c.spec.argv):
        return False
    for worker in s.components.values():
        if worker.plane is not Plane.CACHE:
            continue
        if worker.state is not State.READY or _fails(worker, "kv") or _fails(worker, "liveness"):
            return True
        back_at = worker.ready_at or 0.0
        if back_at > (c.ready_at or 0.0) and s.now - back_at < CACHE_SETTLED_S:
            return True
    return False


def _acts(c: ComponentView, *names: str) -> bool:
    """Whether the component has all these checks, and none of them only observes."""
    acting = {k.name for k in c.spec.checks if k.act}
    return acting.issuperset(names)


def _fails(c: ComponentView, name: str) -> bool:
    tally = c.checks.get(name)
    return tally is not None and tally.result.verdict is Verdict.FAIL


def _stands(c: ComponentView, name: str) -> bool:
    """Whether a check fails, beyond its threshold."""
    return _fails(c, name) and c.checks[name].failing and NEEDS.get(name, "") in ("", *c.checks[name].result.facts)


def _fact(c: ComponentView, check: str, name: str) -> float:
    tally = c.checks.get(check)
    return 0.0 if tally is None else tally.result.facts.get(name, 0.0)


def _said(c: ComponentView, name: str) -> str:
    tally = c.checks.get(name)
    return tally.result.evidence if tally else f"no check {name}"
