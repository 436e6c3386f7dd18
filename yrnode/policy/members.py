"""How this node's etcd member begins: on its data, in a new cluster, or again in one that lives. Pure.

Only one wrong turn cannot be undone: a second cluster beside the first. So `new` takes a node that has never had a
ready member, enough others that say the same, and nobody who knows of a cluster, however late he answers.
"""

from __future__ import annotations

from yrnode.model.cause import Cause, Reason
from yrnode.model.member import Data, Heard, Kept, Listed, Living, MemberMove, MemberStep, MemberView, Word
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import State

NAME = "etcd"
QUORUM = "quorum"
"""The check that looks at the other members."""
STRANGERS = "strangers"
"""Its fact: so many of the others are members of one other cluster, and are a majority."""
PATIENCE_S = 10.0
"""So long a node that is silent may only be slow: what it knows may be that there is a cluster."""


def majority(members: int) -> int:
    return members // 2 + 1


def decide(v: MemberView) -> MemberStep:
    living = v.living if v.living is not None and v.living.store else None
    if v.data is Data.WHOLE:
        return _with_data(v, living)
    if v.data is Data.PARTS:
        why = "etcd's data here have no write-ahead log: a start would not read them"
        return _step(MemberMove.ASIDE, why, "its files are there, member/wal is not")
    return _without_cluster(v) if living is None else _join(v, living)


def hear(before: Heard | None, now: Heard) -> Heard:
    """What counts of a node, after what counted before in the same start. Silence takes nothing back."""
    return Heard.FORMED if now is Heard.SILENT and before is Heard.FORMED else now


def word(v: MemberView) -> Word | None:
    """What this node says on its peer port while it waits. What it has only heard from others it does not pass on."""
    if v.kept is not None or v.data is not Data.NONE:
        return Word.KNOWS
    if v.living is not None or Heard.FORMED in v.heard.values():
        return None
    return Word.FRESH


def stands_in(c: ComponentView, s: Snapshot) -> bool:
    """Whether others serve for this component while it does not: a member of etcd whose cluster has its quorum."""
    return c.spec.replicas > 1 and s.store_available


def outcast(c: ComponentView) -> Cause | None:
    """Why the running member is of no use to anybody: the others are a cluster without it."""
    tally = c.checks.get(QUORUM)
    if c.state not in (State.STARTING, State.READY, State.UNHEALTHY) or tally is None or not tally.failing:
        return None
    if not tally.result.facts.get(STRANGERS):
        return None
    return Cause(Reason.MEMBER, "its data are of another cluster than the others", tally.result.evidence, NAME)


def _with_data(v: MemberView, living: Living | None) -> MemberStep:
    if living is None:
        if v.outcast:
            return _step(MemberMove.WAIT, f"to join its cluster again it waits for a quorum of {_others(v)}")
        return _step(MemberMove.START, "etcd starts on its data")
    why = _useless(v, living)
    if why:
        return _step(MemberMove.ASIDE, f"etcd's data here are of no use: {why}", _list(living))
    return _step(MemberMove.START, "etcd starts on its data")


def _useless(v: MemberView, living: Living) -> str:
    """Why the data cannot be started beside this cluster, if they cannot."""
    kept = v.kept or Kept()
    # an older copy may have been put back: what is remembered is of the member that was ready last
    cluster, member = v.written if any(v.written) else (kept.cluster, kept.member)
    store = kept.store if kept.member == member else ""
    if cluster and cluster != living.cluster:
        return f"they are of cluster {cluster:x}, the one that lives is {living.cluster:x}"
    if store and store != living.store:
        return f"they are of store {store}, the one that lives is {living.store}"
    if member and member not in {m.id for m in living.members}:
        return f"their member {member:x} was removed from the cluster"
    return "their member is none of this cluster" if v.outcast and not (cluster and member and store) else ""


def _without_cluster(v: MemberView) -> MemberStep:
    if v.living is not None:
        text = f"etcd on {v.living.node} holds nothing of this cluster: it waits until it does, or is ended"
        return _step(MemberMove.WAIT, text, _list(v.living))
    formed = [n for n, word in v.heard.items() if word is Heard.FORMED]
    if v.kept is not None or formed:
        knows = f"known to {', '.join(formed)}" if formed else "this node was a member of it"
        text = f"waits for a quorum of {_others(v)}: etcd has no data here, and its cluster exists"
        return _step(MemberMove.WAIT, text, f"{knows}; {v.cure}" if v.cure else knows)
    fresh = [n for n, word in v.heard.items() if word is Heard.FRESH]
    need, size = majority(len(v.nodes)), len(v.nodes)
    silent = [n for n, word in v.heard.items() if word is Heard.SILENT]
    there = f"{1 + len(fresh)} of {size} members are there"
    if 1 + len(fresh) < need:
        text = f"waits for {', '.join(silent)}: no quorum for etcd's first start"
        return _step(MemberMove.WAIT, text, f"{there}, it takes {need}")
    late = [n for n in silent if v.silent_s.get(n, 0.0) < PATIENCE_S]
    if late:
        text = f"waits for {', '.join(late)}, which may know of a cluster, {PATIENCE_S:g} s at most"
        return _step(MemberMove.WAIT, text, f"{there}, all new")
    return _step(MemberMove.NEW, "the first start of a new etcd cluster", f"as new: {', '.join((v.me, *fresh))}")


def _join(v: MemberView, living: Living) -> MemberStep:
    mine = [m for m in living.members if v.peer_url in m.peer_urls]
    if not mine:
        for m in living.members:
            if m.name == v.me:
                text = f"waits: etcd lists {v.me} at {', '.join(m.peer_urls)}, not at {v.peer_url}"
                return _step(MemberMove.WAIT, text, f"if that one is gone: etcdctl member remove {m.id:x}")
        return _step(MemberMove.ADD, "etcd's member of this node is not in its cluster's list", _list(living))
    m = mine[0]
    if m.id == v.added or not (m.started or v.kept):
        return _step(MemberMove.JOIN, "etcd joins the cluster that lives", _list(living), members=living.members)
    text = f"etcd's data are gone here: its old member {m.id:x} leaves the list, a new one is added"
    return _step(MemberMove.REMOVE, text, _list(living), id=m.id)


def initial_cluster(v: MemberView, members: tuple[Listed, ...]) -> str:
    """For `--initial-cluster`: all that are listed. etcd compares the URLs; a name must only be there once."""
    named = {url: node for node, url in v.nodes.items()}
    entries = ((named.get(m.peer_urls[0], f"{m.id:x}"), url) for m in members for url in m.peer_urls)
    return ",".join(f"{name}={url}" for name, url in entries)


def _others(v: MemberView) -> str:
    return ", ".join(n for n in v.nodes if n != v.me)


def _list(living: Living) -> str:
    words = (f"{m.name or '-'} {m.id:x}{'' if m.started else ' (not started)'}" for m in living.members)
    return f"through {living.node}: {', '.join(words)}"


def _step(
    move: MemberMove, text: str, evidence: str = "", *, id: int = 0, members: tuple[Listed, ...] = ()
) -> MemberStep:
    return MemberStep(move, Cause(Reason.MEMBER, text, evidence, NAME), id, members)
