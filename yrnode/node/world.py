"""The facts of this node, and how a move changes them. No decisions, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from yrnode.model.action import Action
from yrnode.model.board import PROTOCOL, Board, BoardMove, Intent, Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import Cover
from yrnode.model.group import GroupKind, GroupMove, GroupRecord, Stage
from yrnode.model.refusal import Refusal
from yrnode.model.routing import Drain, RouterView
from yrnode.model.snapshot import Absence, ComponentView, Failure, GroupView, Snapshot
from yrnode.model.spec import ComponentSpec
from yrnode.model.starts import Starts
from yrnode.model.state import Move, State, after
from yrnode.model.verdict import WAITS, Result, Tally
from yrnode.policy import health, intents, phase
from yrnode.policy.group import first_record

LONGEST_HISTORY = 20


@dataclass
class World:
    """Every component and group of this node as a frozen view that is replaced, never changed."""

    components: dict[str, ComponentView]
    groups: dict[str, GroupView] = field(default_factory=dict)
    store_available: bool = False
    store_since: float = 0.0
    store_refusal: Refusal | None = None
    closing: bool = False
    me: str = ""
    peers: tuple[str, ...] = ()
    """All nodes of the cluster file's groups."""
    places: Mapping[str, GroupPlace] = field(default_factory=dict)
    """Of every group of the cluster file."""
    board: Board = field(default_factory=Board)
    fresh: bool = False
    proven_at: float = 0.0
    settled: bool = True
    settles_at: float = 0.0
    protocol: int = PROTOCOL
    intents: dict[str, Intent] = field(default_factory=dict)
    saying: frozenset[str] = frozenset()
    absent: dict[str, Absence] = field(default_factory=dict)
    node: dict[str, Tally] = field(default_factory=dict)
    router: RouterView | None = None
    drain: Drain | None = None
    offsets: dict[str, float] = field(default_factory=dict)
    starts: Starts = field(default_factory=Starts)
    drill: Cause | None = None
    """The wish of a store drill: what it keeps stopped it starts again, so that is no operator's wish to keep."""
    cover: Callable[[str], str] = field(default_factory=Cover)
    """Covers secrets in whatever words come from outside: they are covered before anything is made of them."""

    _looked_at: Mapping[str, Peer] | None = field(default=None, init=False, repr=False, compare=False)
    _away: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def snapshot(self, now: float, jitter: float = 0.0) -> Snapshot:
        return Snapshot(
            now,
            jitter,
            dict(self.components),
            dict(self.groups),
            self.store_available,
            self.store_since,
            self.closing,
            me=self.me,
            board=self.board,
            fresh=self.fresh,
            proven_at=self.proven_at,
            settled=self.settled,
            settles_at=self.settles_at,
            protocol=self.protocol,
            intents=self.intents,
            saying=self.saying,
            absent=self.absent,
            node=dict(self.node),
            store_refusal=self.store_refusal,
            router=self.router,
            drain=self.drain,
            offsets=self.offsets,
            starts=self.starts,
        )

    def covered(self, told: Cause) -> Cause:
        """The same one where there was nothing to cover."""
        text, evidence = self.cover(told.text), self.cover(told.evidence)
        same = (text, evidence) == (told.text, told.evidence)
        return told if same else replace(told, text=text, evidence=evidence)

    def heard(self, found: Result, before: Result) -> Result:
        """A check's result, covered; what the last one said too is not looked at again."""
        if found.evidence == before.evidence:
            return found
        return replace(found, evidence=self.cover(found.evidence))

    def update(self, name: str, **facts: object) -> ComponentView:
        facts = {key: self.covered(fact) if isinstance(fact, Cause) else fact for key, fact in facts.items()}
        self.components[name] = replace(self.components[name], **facts)  # type: ignore[arg-type]
        return self.components[name]

    def update_group(self, name: str, **facts: object) -> None:
        self.groups[name] = replace(self.groups[name], **facts)  # type: ignore[arg-type]

    def apply(self, action: Action, now: float) -> None:
        """Write down that a move is made. The caller performs it; a transaction changes nothing before it is read."""
        if isinstance(action.move, Move):
            self._apply_component(action.move, action, now)
        elif action.move is GroupMove.LEARN and action.record is not None:
            self._learn(self.groups[action.target], action.record, now)
        elif action.move is BoardMove.HEED and action.intent is not None:
            self.heed(action.target, action.intent)

    def _learn(self, g: GroupView, record: GroupRecord, now: float) -> None:
        facts: dict[str, object] = {"record": record}
        if record.order != g.record.order:
            facts |= {"learned_at": now, "ready_since": None}
        if record.n != g.record.n:
            facts |= {"ended": False}
        if record.n > g.record.n and record.stage is Stage.STOP:
            # whoever began this life, it is the one that was asked for
            facts |= {"restart": None}
        self.update_group(g.name, **facts)

    def heed(self, target: str, intent: Intent) -> None:
        """Keep what an operator wants, and think again about what is wanted here."""
        self.intents = {**self.intents, target: intent}
        self.rethink()

    def rethink(self) -> None:
        """Which serving groups are wanted on this node: none while it closes, else as the intents say."""
        closing = Cause(Reason.SHUTDOWN, "yrnode goes down") if self.closing else None
        for g in self.groups.values():
            if g.kind is GroupKind.SERVING:
                why = closing or intents.unwanted(g.name, self.me, self.intents)
                # a restart that was asked for ends with the wish to run
                restart = None if why is not None else g.restart
                self.update_group(g.name, wanted=why is None, unwanted=why, restart=restart)

    def take_board(self, board: Board, now: float) -> None:
        """The shared keys as they are now."""
        before, self.board = self.board, board
        for g in self.groups.values():
            if g.ready_since is not None and board.phases(g.name) is before.phases(g.name):
                # nobody has said anything else: with hundreds of nodes that is worth a look
                continue
            since = phase.ready_since(g, board, now)
            if since != g.ready_since:
                self.update_group(g.name, ready_since=since)

    def note_absent(self, now: float, watched_since: float | None) -> None:
        """Which nodes' keys are gone, counted only while nothing in the watch can have been missed."""
        if watched_since is None:
            self.absent = {}
            return
        nodes = self.board.nodes
        if nodes is not self._looked_at:
            # a look at hundreds of names in each round would cost more than the round
            self._away = [n for n in self.peers if n not in nodes and n != self.me]
            self._looked_at = nodes
        if not self._away and not self.absent:
            return
        known = {n: a for n, a in self.absent.items() if a.since >= watched_since}
        self.absent = {n: known.get(n) or Absence(now) for n in self._away}

    def _apply_component(self, move: Move, action: Action, now: float) -> None:
        view = self.components[action.target]
        cause = self.covered(action.cause)
        facts: dict[str, object] = {
            "state": after(view.state, move),
            "since": now,
            "cause": cause,
            "deadline": None,
        }
        match move:
            case Move.CLEAN:
                facts |= {
                    "cleaned": False,
                    "blocked": None,
                    "memory": None,
                    "leaving": None,
                    "death": None,
                    "died_at": None,
                    "gone": False,
                    "restart": None,
                }
            case Move.START:
                if view.spec.group is not None:
                    n = self.groups[view.spec.group].record.n
                    self.update_group(view.spec.group, started=n, ended=False)
                facts |= {
                    "generation": self._generation(view),
                    "life": self.groups[view.spec.lives_with].record.n if view.spec.lives_with else 0,
                    "deadline": now + view.spec.start_timeout_s,
                    "checks": fresh_checks(view.spec),
                    "ready_at": None,
                    "ready_seconds": None,
                    # it would be stopped at once to be started again
                    "restart": None,
                    "drilled": False,
                    "restarts": view.restarts + (1 if view.generation else 0),
                }
            case Move.READY:
                facts |= {"ready_at": now, "ready_seconds": now - view.since}
            case Move.STOP:
                facts |= {
                    "gone": False,
                    "leaving": cause,
                    "restart": None,
                    "history": self._history(view, cause, now),
                }
            case Move.WAIT:
                facts |= {"deadline": now + action.delay, "pid": None, "instance": ""}
            case Move.REST | Move.GIVE_UP:
                facts |= {"pid": None, "instance": ""}
        self.update(view.name, **facts)

    def _generation(self, view: ComponentView) -> int:
        if view.spec.group is not None:
            return self.groups[view.spec.group].record.n
        return view.generation + 1

    def _history(self, view: ComponentView, cause: Cause, now: float) -> tuple[Failure, ...]:
        if cause.reason is Reason.OPERATOR:
            return ()
        if not cause.fault or view.drilled:
            return view.history
        lived = now - view.ready_at if view.ready_at is not None else 0.0
        return (*view.history, Failure(now, lived, cause))[-LONGEST_HISTORY:]

    def record_result(self, name: str, instance: str, check: str, result: Result, now: float) -> bool:
        """Fold one result in; whether it brings news. One of any other instance than the present one is void."""
        view = self.components[name]
        if view.instance != instance:
            return False
        spec = next(c for c in view.spec.checks if c.name == check)
        before = view.checks[check]
        tally = health.fold(before, self.heard(result, before.result), now, spec)
        self.update(name, checks={**view.checks, check: tally})
        if view.deadline is not None and view.state is State.STARTING and result.facts.get(WAITS):
            self.update(name, deadline=now + view.spec.start_timeout_s)
        # good news again and again needs no round of its own
        return _weight(tally) != _weight(before)

    def reset_checks(self, name: str) -> None:
        """What was counted during the start does not count against the running instance."""
        view = self.components[name]
        tallies = {k: replace(t, failures=0, successes=0, failing=False) for k, t in view.checks.items()}
        self.update(name, checks=tallies)


def _weight(tally: Tally) -> tuple[object, ...]:
    """What a decision may turn on."""
    return tally.result.verdict, tally.result.facts, tally.failures, tally.failing, tally.passed


def fresh_checks(spec: ComponentSpec) -> Mapping[str, Tally]:
    return {c.name: Tally() for c in spec.checks}


@dataclass(frozen=True)
class GroupPlace:
    """Where a group lives: the cluster file's nodes in rank order, what its ranks mean, as a digest, the groups that
    it restarts with, and how many ranks it has on all nodes."""

    nodes: tuple[str, ...]
    digest: str = ""
    coupled: tuple[str, ...] = ()
    ranks: int = 0


def make(
    specs: Iterable[ComponentSpec], now: float, me: str = "n0", places: Mapping[str, GroupPlace] | None = None
) -> World:
    """`places` by group; a group without one lives on this node alone."""
    components = {s.name: ComponentView(s, State.STOPPED, now, checks=fresh_checks(s)) for s in specs}
    members: dict[str, list[str]] = {}
    kinds: dict[str, GroupKind] = {}
    for view in components.values():
        name = view.spec.group or view.spec.lives_with
        if name is not None:
            members.setdefault(name, []).append(view.name)
            kinds[name] = GroupKind.SERVING if view.spec.group else GroupKind.CACHE
    groups = {}
    peers: dict[str, None] = {me: None}
    for name, m in members.items():
        place = (places or {}).get(name) or GroupPlace((me,))
        peers |= dict.fromkeys(place.nodes)
        groups[name] = GroupView(
            name, first_record(), tuple(m), kinds[name], place.nodes, place.digest, place.coupled, learned_at=now
        )
    return World(components, groups, store_since=now, me=me, peers=tuple(peers), places=dict(places or {}))


def at_rest(s: Snapshot) -> bool:
    """Whether nothing of this node runs or is about to."""
    return all(c.state is State.STOPPED for c in s.components.values())
