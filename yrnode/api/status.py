"""The status of this node as JSON: what runs, what does not, and why. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from yrnode.model.cause import Cause, Reason
from yrnode.model.group import Phase, Stage
from yrnode.model.identity import Identity
from yrnode.model.refusal import Refusal
from yrnode.model.routing import Drain, RouterView
from yrnode.model.snapshot import ComponentView, GroupView, Snapshot
from yrnode.model.state import State
from yrnode.model.verdict import Tally
from yrnode.policy import causes, frozen, gather, phase, readiness, usual
from yrnode.policy import component as policy
from yrnode.policy.differs import differences


def status(snapshot: Snapshot, identity: Identity, now: float, wall: float) -> dict[str, Any]:
    """The contract's status. `now` (monotonic) and `wall` are the same moment in seconds, for people's times."""
    clock = _Clock(now, wall)
    why = reasons(snapshot)
    return {
        "node": identity.node,
        "cluster": identity.cluster,
        "version": identity.version,
        "started_at": iso(identity.started_at),
        "at": iso(wall),
        "ready": not why,
        "reasons": why,
        "closing": snapshot.closing,
        "store": {
            "available": snapshot.store_available,
            "since": clock.iso(snapshot.store_since),
            "refuses_writes": _refusal(snapshot.store_refusal, clock),
            **_frozen(snapshot, clock),
        },
        "components": {name: _component(c, snapshot, clock) for name, c in snapshot.components.items()},
        "groups": {name: _group(g, snapshot, identity.node) for name, g in snapshot.groups.items()},
        "node_checks": {name: _check(tally, clock) for name, tally in snapshot.node.items()},
        "peers": _peers(snapshot, clock),
        "intents": _intents(snapshot),
        "router": _router(snapshot.router),
        "drain": _drain(snapshot.drain, clock),
    }


def reasons(s: Snapshot) -> list[str]:
    """Why this node is not ready, one line each; empty when every component that it must run is ready."""
    if s.closing:
        return ["yrnode is shutting down"]
    found = []
    if not readiness.serves(s):
        stopped = "no group is wanted: an operator has stopped what serves" if s.groups else "no component is wanted"
        found.append(stopped if s.components else "no component yet")
    for c in readiness.unready(s):
        line = f"{c.name} is {c.state.value}"
        told = reason(c, s)
        found.append(f"{line}: {told}" if told else line)
    return found


def reason(c: ComponentView, s: Snapshot) -> str:
    """The current cause in words, with what it still waits for."""
    cause = causes.current(c, s)
    words = _words(cause) if cause else ""
    waiting = policy.waits_for(c, s)
    if waiting:
        words = "; ".join(filter(None, (words, "waits for " + ", ".join(waiting))))
    elif c.state is State.STARTING and causes.died(c) is None:
        gap = _gap(c)
        words = "; ".join(filter(None, (words, gap and f"not yet proven: {gap}")))
    return words


def iso(wall: float) -> str:
    """Wall seconds as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(wall, timezone.utc).isoformat(timespec="milliseconds")


class _Clock:
    """Turns monotonic seconds into wall time, for people."""

    def __init__(self, now: float, wall: float) -> None:
        self.now = now
        self._wall = wall

    def iso(self, monotonic: float) -> str:
        return iso(self._wall - (self.now - monotonic))

    def age(self, monotonic: float) -> float:
        return round(max(0.0, self.now - monotonic), 3)


def _refusal(refusal: Refusal | None, clock: _Clock) -> dict[str, Any] | None:
    if refusal is None:
        return None
    return {"since": clock.iso(refusal.since), "evidence": refusal.text, "cure": list(refusal.cure)}


def _frozen(s: Snapshot, clock: _Clock) -> dict[str, Any]:
    """What cannot be decided now, and why: no lines when everything can be."""
    found = frozen.frozen(s)
    if found is None:
        return {"frozen": [], "frozen_why": "", "frozen_since": None}
    since = None if found.since is None else clock.iso(found.since)
    return {"frozen": list(found.lines), "frozen_why": found.why, "frozen_since": since}


def _words(cause: Cause) -> str:
    kind = cause.reason.value
    text = str(cause)
    # that somebody asked is said in front, whatever his words
    said = kind in text.split(":", maxsplit=1)[0] and cause.reason is not Reason.OPERATOR
    return text if said else f"{kind}: {text}"


def _gap(c: ComponentView) -> str:
    for check in c.spec.gates:
        tally = c.checks.get(check.name, Tally())
        if not tally.passed:
            return f"{check.name}: {tally.result.evidence}"
    return ""


def _component(c: ComponentView, s: Snapshot, clock: _Clock) -> dict[str, Any]:
    last = c.history[-1] if c.history else None
    return {
        "plane": c.plane.value,
        "state": c.state.value,
        "pid": c.pid,
        "instance": c.instance,
        "generation": c.generation,
        "since": clock.iso(c.since),
        "restarts": c.restarts,
        "reason": reason(c, s),
        "checks": {check.name: _check(c.checks.get(check.name, Tally()), clock) for check in c.spec.checks},
        "group": c.spec.group,
        "wanted": policy.wanted(c, s),
        "waiting_for": policy.waits_for(c, s),
        "ready_seconds": None if c.ready_seconds is None else round(c.ready_seconds, 3),
        "usual_start_s": s.starts.components.get(c.name),
        "progress": _progress(usual.of_component(c, s)),
        "last_failure": last
        and {
            "at": clock.iso(last.at),
            "reason": last.cause.reason.value,
            "cause": last.cause.text,
            "evidence": last.cause.evidence,
        },
    }


def _check(tally: Tally, clock: _Clock) -> dict[str, Any]:
    ran = tally.at > 0
    return {
        "verdict": tally.result.verdict.value,
        "evidence": tally.result.evidence,
        "age_s": clock.age(tally.at) if ran else None,
        "took_s": round(tally.result.took_s, 4) if ran else None,
        "failures": tally.failures,
        "failing": tally.failing,
        "episodes": tally.episodes,
        "runs": tally.runs,
        "unknowns": tally.unknowns,
    }


def _group(g: GroupView, s: Snapshot, node: str) -> dict[str, Any]:
    members = [s.components[name] for name in g.members]
    return {
        "generation": g.record.n,
        "stage": g.record.stage.value,
        # of this node, what it would say now
        "phases": {**_phases(g, s), node: phase.own(g, s).phase.value},
        "cause": _group_cause(g.record.cause),
        "waiting_for": _group_waits(g, members, s),
        "members": list(g.members),
        "wanted": g.wanted,
        "fails": g.record.fails,
        "usual_start_s": s.starts.groups.get(g.name),
        "progress": _progress(usual.of_group(g, s)),
    }


def _progress(p: usual.Progress | None) -> dict[str, Any] | None:
    """How far a start is; `late`: far beyond the usual time, which is only told."""
    if p is None:
        return None
    elapsed = round(p.elapsed_s, 1)
    return {"what": p.what, "elapsed_s": elapsed, "usual_s": p.usual_s, "late": p.late, "doing": p.doing}


def _phases(g: GroupView, s: Snapshot) -> dict[str, str]:
    """Of every node of the group, what it says of the present life."""
    told = s.board.phases(g.name)
    return {n: told[n].phase.value if n in told and told[n].n == g.record.n else "unknown" for n in g.nodes}


def _peers(s: Snapshot, clock: _Clock) -> dict[str, Any]:
    """The other nodes: whether their key is there, and in what they differ from this one."""
    own = s.board.nodes.get(s.me)
    found: dict[str, Any] = {}
    for node in s.others:
        peer, away = s.board.nodes.get(node), s.absent.get(node)
        found[node] = {
            # nobody knows while the store is away
            "up": (peer is not None) if s.fresh else None,
            "absent_since": clock.iso(away.since) if away else None,
            "fenced": node in s.board.fences,
            "version": peer.version if peer else None,
            "api": peer.api if peer else None,
            "differs": differences(own, peer) if own and peer else [],
            "clock_offset_s": _rounded(s.offsets.get(node)),
        }
    return found


def _intents(s: Snapshot) -> dict[str, Any]:
    """What operators have said that still keeps something from running or healing, by target."""
    return {
        target: {"run": i.run, "paused": i.paused, "by": i.by, "why": i.why, "at": iso(i.at)}
        for target, i in s.intents.items()
        if i.paused or not i.run
    }


def _router(router: RouterView | None) -> dict[str, Any] | None:
    """Who is behind the router, on its own node alone."""
    if router is None:
        return None
    members = [
        {
            "rank": m.route.rank,
            "group": m.route.group,
            "node": m.route.node,
            "role": m.route.role.value,
            "url": m.route.url,
            "state": "leaving" if m.listed and m.leaving else "in" if m.listed else "out",
            "wanted": m.judged.standing.value,
            "why": m.judged.why,
        }
        for m in router.members.values()
    ]
    return {
        "kind": router.kind,
        "url": router.url,
        "members": members,
        "others": list(router.others),
        "error": router.error,
    }


def _drain(drain: Drain | None, clock: _Clock) -> dict[str, Any] | None:
    """How far this node is with its requests, before it stops."""
    if drain is None:
        return None
    return {
        "since": clock.iso(drain.since),
        "left_s": round(max(0.0, drain.deadline - clock.now), 1),
        "out_of_router": drain.out,
        "unfinished": drain.unfinished,
        "evidence": drain.evidence,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _group_cause(cause: Cause) -> str:
    return f"{cause.component}: {_words(cause)}" if cause.component else _words(cause)


def _group_waits(g: GroupView, members: list[ComponentView], s: Snapshot) -> list[str]:
    if not g.wanted:
        return ["an operator"]
    if g.record.stage is Stage.FAILED:
        return [f"an operator: yrnode restart {g.name}"]
    if g.record.stage is Stage.GO:
        here = [f"{c.name} ({c.state.value})" for c in members if c.state is not State.READY]
        return here + [f"{n} ({p})" for n, p in _phases(g, s).items() if n != s.me and p != Phase.READY.value]
    waits = []
    begins = g.learned_at + g.record.backoff_s
    if begins > s.now:
        waits.append(f"backoff ({begins - s.now:.1f} s)")
    for c in members:
        waits += [other for other in policy.missing(c, s) if other not in waits]
        if not (c.state is State.CLEANING and c.cleaned):
            waits.append(f"{c.name} ({c.state.value})")
    return [*waits, *gather.nodes(g, s, but=s.me)]
