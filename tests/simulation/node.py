"""One node of the simulation: the very decisions and facts of yrnode over made-up processes and a model store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yrnode.model.action import Action
from yrnode.model.board import PROTOCOL, BoardMove, Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, Phase
from yrnode.model.snapshot import Absence, GroupView
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Move, Plane, State
from yrnode.model.verdict import fail, ok
from yrnode.node import operator, world
from yrnode.policy import gather, plan, trust

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

GROUP, CACHE = "serve", "cache"
PAIR = "decode"
"""A second group, which restarts with the first one, where a cluster has it."""
GATE = CheckSpec("gate", "x", 1.0, 1.0, gate=True, watch=False)
ACTS = CheckSpec("acts", "x", 1.0, 1.0, failures=1)
START_S = {"worker": 60.0, "rank": 120.0}
PROBE_S = 2.0
LOOK_S = 15.0
"""How long a node sleeps when nothing happens: longer than the real one, which only makes it later."""


def group_of(component: str) -> str:
    return CACHE if component == "worker" else component.split("/")[1]


def spec(name: str, kind: str, plane: Plane, **group: str) -> ComponentSpec:
    here = Path("/")
    limit_s = START_S[kind]
    return ComponentSpec(
        name,
        kind,
        plane,
        (),
        {},
        here,
        here,
        start_timeout_s=limit_s,
        checks=(GATE, ACTS),
        **group,  # type: ignore[arg-type]
    )


@dataclass
class Process:
    """`life`: of its group. `state`: starting, stuck, serving, hung, dead. `ring`: where a worker has registered."""

    life: int
    state: str = "starting"
    ring: str = ""
    serial: int = 0


class Node:
    """`disk` outlives the daemon and the host; `processes` outlive the daemon."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.host_up = self.daemon_up = False
        self.lost = False
        self.sticks = False
        """Whether the next start of a rank comes to no end."""
        self.processes: dict[str, Process] = {}
        self.disk: dict[str, GroupView] = {}
        self.intents: dict[str, Any] = {}
        self.known = trust.Known()
        self.protocol = PROTOCOL
        self.life = 0
        """Counts daemons: what was begun by an earlier one is void."""
        self.lease_until = -1.0
        """What this node may count on; `leased_until` is what the store will keep, which is never less."""
        self.leased_until = -1.0
        self.cut_until = -1.0
        self.deaf_until = -1.0
        self.proven_at = -1.0
        self.broken = True
        self.unbroken_since = 0.0
        self.looked_at = 0.0
        self.round_due: float | None = None
        self.world = self.make()

    def rank(self, group: str) -> str:
        return f"rank/{group}/{self.name}"

    def make(self) -> world.World:
        worker = spec("worker", "worker", Plane.CACHE, lives_with=CACHE)
        groups = self.cluster.groups
        ranks = [spec(self.rank(g), "rank", Plane.ENGINE, group=g) for g in groups]
        places = {
            g: world.GroupPlace(*self.cluster.file(self.name, g), coupled=tuple(o for o in groups if o != g))
            for g in groups
        }
        places[CACHE] = world.GroupPlace(self.cluster.names)
        return world.make([worker, *ranks], self.cluster.now, self.name, places)

    # its life

    def begin_daemon(self) -> None:
        """It starts: what it remembers and what still runs is taken over before the first look at the store."""
        now = self.cluster.now
        self.daemon_up, self.life = True, self.life + 1
        self.world = self.make()
        self.world.protocol = self.protocol
        self.known = trust.Known(*self.known.kept)
        for name, kept in self.disk.items():
            self.world.groups[name] = replace(
                self.world.groups[name],
                record=kept.record,
                started=kept.started,
                cleaned=kept.cleaned,
                ended=kept.ended,
                learned_at=now,
            )
        for target, intent in self.intents.items():
            self.world.heed(target, intent)
        for name, process in self.processes.items():
            self.adopt(name, process)
        # a new daemon has a lease of its own, and puts its node's key anew
        self.lease_until, self.proven_at, self.broken = -1.0, -1.0, True
        self.tick(self.life)

    def adopt(self, name: str, process: Process) -> None:
        now = self.cluster.now
        ready = process.state == "serving"
        cached = name == "worker"
        self.world.update(
            name,
            state=State.READY if ready else State.STARTING,
            since=now,
            cause=Cause(Reason.START, "adopted"),
            instance=f"p{process.serial}",
            generation=1 if cached else process.life,
            life=process.life if cached else 0,
            pid=process.serial,
            deadline=None if ready else now + START_S["worker" if cached else "rank"],
            ready_at=now if ready else None,
            death=Cause(Reason.EXITED, "died meanwhile", "", name) if process.state == "dead" else None,
        )

    def end_daemon(self) -> None:
        self.daemon_up, self.life = False, self.life + 1

    def end_host(self) -> None:
        self.end_daemon()
        self.host_up = False
        for name in list(self.processes):
            self.cluster.kill(self, name)
        self.processes.clear()

    # what it sees of the store

    def reaches(self) -> bool:
        return self.cluster.store.up and self.cluster.now >= self.cut_until

    def tick(self, born: int) -> None:
        """Its lease, its watch and its probe, at a steady pace."""
        if born != self.life or not self.daemon_up:
            return
        now, c = self.cluster.now, self.cluster
        if self.reaches():
            if now >= self.lease_until or self.name not in c.store.board.nodes:
                c.store.join(self.name, Peer(f"{self.name}-{self.life}", protocol=self.protocol))
                c.published()
            self.lease_until = self.leased_until = now + trust.LEASE_S
            if self.broken:
                self.broken, self.unbroken_since = False, now
            if now >= self.deaf_until:
                self.see()
        else:
            self.broken = True
        c.at(now + PROBE_S, lambda: self.tick(born))

    def see(self) -> None:
        """The watch has delivered all there is, and the store's own read says so."""
        news = not self.cluster.rules.fresh(self)
        self.proven_at = self.cluster.now
        board = self.cluster.store.board
        if board is not self.world.board:
            self.world.take_board(board, self.cluster.now)
            self.judge_store()
            news = True
        if news or self.cluster.now >= self.looked_at + LOOK_S or self.hurried():
            self.wake()

    def hurried(self) -> bool:
        """Whether a start waits for the very next proof."""
        return self.world.components["worker"].state is State.CLEANING

    def judge_store(self) -> None:
        board = self.world.board
        self.known = self.known.read(self.world.groups.values(), board, self.cluster.now)

    def absences(self) -> None:
        c, since = self.cluster, None if self.broken or not self.world.fresh else self.unbroken_since
        self.world.note_absent(c.now, since)
        for node, away in self.world.absent.items():
            other = self.cluster.nodes[node]
            self.world.absent[node] = Absence(away.since, frozenset(g for g in c.groups if not other.listens(g)))

    # rounds

    def wake(self) -> None:
        if self.daemon_up and self.round_due is None:
            self.round_due = self.cluster.now + self.cluster.draw(0.002, 0.02)
            born = self.life
            self.cluster.at(self.round_due, lambda: self.round(born))

    def round(self, born: int) -> None:
        self.round_due = None
        self.looked_at = self.cluster.now
        if born != self.life or not self.daemon_up:
            return
        c = self.cluster
        c.rules.prove(self)
        self.world.fresh = c.rules.fresh(self)
        self.world.proven_at = self.proven_at
        self.known = self.known.later(c.now)
        self.world.settled, self.world.settles_at = self.known.settled(c.now), self.known.until
        if self.world.store_available is not self.reaches():
            self.world.store_available, self.world.store_since = self.reaches(), c.now
        self.absences()
        s = self.world.snapshot(c.now, c.draw(0.0, 1.0))
        acted = False
        for action in plan.decide(s):
            c.note(self, action)
            acted |= self.act(action)
        look = plan.next_look(s)
        if acted:
            self.wake()
        elif look is not None:
            c.at(look + 0.001, self.wake)

    def act(self, action: Action) -> bool:
        match action.move:
            case GroupMove.LEARN | BoardMove.HEED:
                self.cluster.judge_learning(self, action)
                self.world.apply(action, self.cluster.now)
                self.keep()
                return True
            case GroupMove() | BoardMove():
                if action.move is GroupMove.TELL and action.member is not None and action.member.phase is Phase.CLEAN:
                    self.world.update_group(action.target, cleaned=action.member.n)
                    self.keep()
                self.transact(action)
                return False
        view = self.world.components[action.target]
        if action.move is Move.START:
            self.cluster.judge_start(self, view)
        elif action.move is Move.STOP and view.state in (State.STARTING, State.READY, State.UNHEALTHY):
            self.cluster.judge_stop(self, view, action.cause)
        self.world.apply(action, self.cluster.now)
        self.keep()
        self.perform(action.move, view.name)
        return True

    def keep(self) -> None:
        self.disk = dict(self.world.groups)
        self.intents = dict(self.world.intents)

    def perform(self, move: Move, name: str) -> None:
        c, born = self.cluster, self.life
        match move:
            case Move.CLEAN:
                c.at(c.now + c.draw(0.01, 0.5), lambda: self.fact(born, name, cleaned=True))
            case Move.START:
                c.start(self, name)
            case Move.STOP if self.world.components[name].state is State.STOPPING:
                c.at(c.now + c.draw(0.05, 6.0), lambda: self.stopped(born, name))

    def stopped(self, born: int, name: str) -> None:
        if born != self.life:
            return
        self.cluster.kill(self, name)
        self.processes.pop(name, None)
        self.fact(born, name, gone=True)

    def fact(self, born: int, name: str, **facts: Any) -> None:
        if born == self.life and self.daemon_up:
            self.world.update(name, **facts)
            self.wake()

    def result(self, name: str, process: Process, check: str, good: bool) -> None:
        """A check of this process speaks; of one that is replaced it is void."""
        if self.daemon_up:
            found = ok("fine") if good else fail("no progress")
            self.world.record_result(name, f"p{process.serial}", check, found, self.cluster.now)
            self.wake()

    # transactions

    def transact(self, action: Action) -> None:
        c, born = self.cluster, self.life
        seen = self.world.board
        if isinstance(action.move, GroupMove):
            self.world.update_group(action.target, busy=True)
        else:
            self.world.saying = self.world.saying | {action.target}
        view = self.world.groups.get(action.target)
        fences = gather.fences_used(view, seen) if view and action.move is GroupMove.GO else {}
        c.at(c.now + c.draw(0.001, 0.05), lambda: self.commit(born, action, seen, fences))

    def commit(self, born: int, action: Action, seen: Any, fences: dict[str, int]) -> None:
        c = self.cluster
        # the daemon may be gone while what it had sent is still on its way
        done = self.reaches() and c.commit(self, action, seen, fences)
        if not (done and c.draw(0.0, 1.0) > 0.02):
            c.at(c.now + 0.2, lambda: self.settle(born, action))
            return
        c.at(c.now + c.draw(0.001, 0.02), lambda: self.settle(born, action, c.store.board))

    def settle(self, born: int, action: Action, written: Any = None) -> None:
        if born != self.life:
            return
        if written is not None:
            self.learn(action, written)
        if isinstance(action.move, GroupMove):
            self.world.update_group(action.target, busy=False)
        else:
            self.world.saying = self.world.saying - {action.target}
        self.wake()

    def learn(self, action: Action, written: Any) -> None:
        """A transaction's answer tells of its own key alone, and earlier than the watch."""
        board, target = self.world.board, action.target
        if action.member is not None:
            self.world.board = board.with_member(target, self.name, action.member)
        elif action.record is not None:
            for group in (target, *action.also):
                now, there = written.records.get(group), board.records.get(group)
                if now is not None and (there is None or there.revision < now.revision):
                    board = board.with_record(group, now.record, now.revision)
            self.world.board = board

    # people

    def say(self, target: str, **wish: bool) -> None:
        operator.say(self.world, target, Cause(Reason.OPERATOR, f"{wish} {target}"), **wish)
        self.keep()
        self.wake()

    def restart(self, group: str = GROUP) -> None:
        self.world.update_group(group, restart=Cause(Reason.OPERATOR, f"restart {group}"))
        self.wake()

    def serves(self, group: str) -> bool:
        process = self.processes.get(self.rank(group))
        return process is not None and process.state == "serving"

    def listens(self, group: str) -> bool:
        process = self.processes.get(self.rank(group))
        return self.host_up and process is not None and process.state in ("serving", "hung")
