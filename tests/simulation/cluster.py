"""Many nodes and one store on virtual time: what befalls them, and what must hold whatever does."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.simulation.node import CACHE, GROUP, PAIR, Node, Process, group_of
from tests.simulation.store import ModelStore
from yrnode.model.action import Action
from yrnode.model.board import PROTOCOL, Board, BoardMove
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, Phase, Stage
from yrnode.model.snapshot import ComponentView
from yrnode.policy import trust

HISTORY = 4000


class Broken(AssertionError):
    """An invariant does not hold. The text says which, `history` how it came."""

    def __init__(self, text: str, history: Iterable[str]) -> None:
        super().__init__(text)
        self.history = tuple(history)


@dataclass
class Rules:
    """What the mutants change."""

    prove: Callable[[Node], None] = field(default=lambda n: None)
    fresh: Callable[[Node], bool] = field(
        default=lambda n: trust.fresh(n.world.board, n.cluster.now, n.proven_at, n.cluster.now < n.lease_until)
    )


class Cluster:
    """`names` in rank order. Everything random comes from `seed`. `pair`: with two groups that restart together."""

    def __init__(self, size: int, seed: int, rules: Rules | None = None, *, pair: bool = False) -> None:
        self.names = tuple(f"n{i}" for i in range(size))
        self.groups = (GROUP, PAIR) if pair else (GROUP,)
        self.random = random.Random(seed)
        self.seed, self.rules = seed, rules or Rules()
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        self.history: deque[str] = deque(maxlen=HISTORY)
        self.store = ModelStore()
        self.protocol = PROTOCOL
        self.left = ""
        """A node that the cluster file no longer has for the serving group."""
        self.nodes = {name: Node(self, name) for name in self.names}
        self.serial = 0
        self.trouble: dict[tuple[str, int], str] = {}
        """Per group and life: the first thing that really befell it."""
        self.meddled = False
        """An operator has asked for something that stops ranks."""
        self.bumps: list[tuple[float, str, int, str]] = []
        self.slow = 0.0
        """The share of events that the watch delivers late."""
        self._publishing = False
        self.at(0.0, self.sweep)

    def file(self, node: str, group: str) -> tuple[tuple[str, ...], str]:
        """A serving group's nodes and digest, as the cluster file on a node has them."""
        if not self.left or node == self.left or group != GROUP:
            return self.names, ""
        return tuple(n for n in self.names if n != self.left), "without"

    def serving(self, group: str) -> list[Node]:
        """The nodes of a serving group."""
        return [n for n in self.nodes.values() if n.name != self.left or group != GROUP]

    def group(self) -> str:
        """One of the serving groups."""
        return self.random.choice(self.groups) if len(self.groups) > 1 else GROUP

    # time

    def draw(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def at(self, when: float, what: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    def tell(self, text: str) -> None:
        self.history.append(f"{self.now:9.3f}  {text}")

    def note(self, node: Node, action: Action) -> None:
        if action.move is not GroupMove.TELL:
            n = f" n={action.record.n}/{action.record.stage.value}" if action.record else ""
            self.tell(f"{node.name}: {action.move.value} {action.target}{n}: {action.cause}")
        elif action.member is not None:
            self.tell(f"{node.name}: tells {action.target} {action.member.phase.value}@{action.member.n}")

    def broken(self, text: str) -> None:
        self.tell(f"BROKEN {text}")
        raise Broken(f"{text} (seed {self.seed}, {len(self.names)} nodes)", self.history)

    # the store

    def published(self) -> None:
        """Whoever watches hears of it, soon or late; several changes may come as one."""
        if self._publishing:
            return
        self._publishing = True
        self.at(self.now, self._deliver)

    def _deliver(self) -> None:
        self._publishing = False
        for node in self.nodes.values():
            if not node.daemon_up or self.draw(0.0, 1.0) < self.slow:
                continue
            born = node.life
            self.at(self.now + self.draw(0.001, 0.03), lambda n=node, b=born: self._arrive(n, b))

    def _arrive(self, node: Node, born: int) -> None:
        heard = node.reaches() and not node.broken and self.now >= node.deaf_until
        if born == node.life and node.daemon_up and heard:
            node.see()

    def sweep(self) -> None:
        """Leases that nobody has renewed are over."""
        for node in self.nodes.values():
            if self.store.up and node.name in self.store.board.nodes and self.now >= node.leased_until:
                self.tell(f"lease of {node.name} is over")
                self.store.expire(node.name)
                self.published()
        self.at(self.now + 1.0, self.sweep)

    def commit(self, node: Node, action: Action, seen: Board, fences: dict[str, int]) -> bool:
        if action.move is not GroupMove.TELL:
            others = [n for n, p in seen.nodes.items() if p.protocol != node.protocol and n != node.name]
            if others:
                self.broken(f"H: {action.move.value} of {action.target} beside {', '.join(others)}")
        done = self._commit(node, action, seen, fences)
        if done:
            self.published()
        return done

    def _commit(self, node: Node, action: Action, seen: Board, fences: dict[str, int]) -> bool:
        store = self.store
        match action.move:
            case GroupMove.TELL if action.member is not None:
                if self.now >= node.lease_until or node.name not in store.board.nodes:
                    return False
                store.tell(action.target, node.name, action.member)
                return True
            case BoardMove.SAY if action.intent is not None:
                there = seen.intents.get(action.target)
                return store.say(action.target, action.intent, there.revision if there else 0)
            case BoardMove.UNFENCE:
                return store.unfence(node.name, {g: r.revision for g, r in seen.records.items()})
        if action.record is None or not isinstance(action.move, GroupMove):
            return False
        return self._swap(node, action, action.move, seen, fences)

    def _swap(self, node: Node, action: Action, move: GroupMove, seen: Board, fences: dict[str, int]) -> bool:
        record = action.record
        assert record is not None
        if move is GroupMove.GO and action.target == CACHE and not self._may_clear(record.store, seen, record.n):
            return False
        intents = None if move is GroupMove.PUT_BACK else seen.revision
        records = {action.target: record, **action.also}
        revisions = {g: seen.records[g].revision if g in seen.records else 0 for g in records}
        before = self.store.board
        if not self.store.swap(records, revisions, intents=intents, fences=fences):
            return False
        self.judge_swap(action, move, before)
        if move is GroupMove.GO and action.target == CACHE:
            self.store.ring.clear()
        return True

    def _may_clear(self, store_id: str, seen: Board, n: int) -> bool:
        """The transaction compares the store's identity, and the keys of workers that are not proven gone."""
        told = seen.phases(CACHE)
        gone = {name for name, m in told.items() if m.n == n}
        return store_id == self.store.board.store_id and not set(self.store.ring) - gone

    # processes

    def start(self, node: Node, name: str) -> None:
        self.serial += 1
        view = node.world.components[name]
        worker = name == "worker"
        n = node.world.groups[CACHE].record.n if worker else view.generation
        node.processes[name] = process = Process(n, serial=self.serial)
        node.world.update(name, instance=f"p{self.serial}", pid=self.serial)
        if worker:
            self.at(self.now + self.draw(2.0, 7.0), lambda: self._worker_up(node, process))
        else:
            self.at(self.now + self.draw(1.0, 3.0), lambda: self._meet(group_of(name), process.life))
            if node.sticks:
                self.stick(node, name)

    def stick(self, node: Node, name: str) -> None:
        """A start that comes to no end: the process lives and never meets the others."""
        node.sticks = False
        process = node.processes[name]
        self.tell(f"FAULT {node.name} {name} of life {process.life} sticks in its start")
        self.trouble.setdefault((group_of(name), process.life), f"{node.name} stuck")
        process.state = "stuck"

    def _worker_up(self, node: Node, process: Process) -> None:
        if node.processes.get("worker") is not process or process.state != "starting":
            return
        if not self.store.up:
            self.at(self.now + 1.0, lambda: self._worker_up(node, process))
            return
        process.state, process.ring = "serving", self.store.board.store_id
        self.store.ring[node.name] = process.ring
        node.result("worker", process, "gate", good=True)

    def _meet(self, group: str, n: int) -> None:
        """The ranks of one life serve when all of them have come."""
        nodes = self.serving(group)
        ranks = [node.processes.get(node.rank(group)) for node in nodes]
        if all(r is not None and r.life == n and r.state == "starting" for r in ranks):
            for node in nodes:
                process = node.processes[node.rank(group)]
                process.state = "serving"
                node.result(node.rank(group), process, "gate", good=True)

    def prove(self, node: Node) -> None:
        """A new daemon's checks find out what its processes are worth."""
        for name, process in node.processes.items():
            if process.state == "serving":
                node.result(name, process, "gate", good=True)
            elif process.state == "hung":
                node.result(name, process, "acts", good=False)

    def kill(self, node: Node, name: str) -> None:
        process = node.processes.get(name)
        if process is None or process.state == "dead":
            return
        process.state = "dead"
        if name == "worker":
            self.store.ring.pop(node.name, None)
        else:
            self._survivors(node, group_of(name), process.life)

    def _survivors(self, node: Node, group: str, n: int) -> None:
        """The others of its life fall over at their next request, or hang; one of its pair may too."""
        for other in self.nodes.values():
            process = other.processes.get(other.rank(group))
            if other is not node and process is not None and process.life == n and process.state == "serving":
                self.at(self.now + self.draw(0.5, 20.0), lambda o=other, p=process: self._fall(o, group, p))
        for pair in self.groups:
            process = node.processes.get(node.rank(pair))
            if pair != group and process is not None and self.draw(0.0, 1.0) < 0.3:
                self.at(self.now + self.draw(0.0, 2.0), lambda g=pair, p=process: self._fall(node, g, p))

    def _fall(self, node: Node, group: str, process: Process) -> None:
        if node.processes.get(node.rank(group)) is not process or process.state != "serving":
            return
        if self.draw(0.0, 1.0) < 0.5:
            self.die(node, node.rank(group), "at its first request")
        else:
            self.hang(node, group)

    def die(self, node: Node, name: str, why: str) -> None:
        process = node.processes.get(name)
        if process is None or process.state == "dead":
            return
        self.tell(f"FAULT {node.name} {name} of life {process.life} dies {why}")
        self.trouble.setdefault((group_of(name), process.life), f"{node.name} {name} died")
        self.kill(node, name)
        node.fact(node.life, name, death=Cause(Reason.EXITED, f"died {why}", "", name))

    def hang(self, node: Node, group: str) -> None:
        process = node.processes.get(node.rank(group))
        if process is None or process.state != "serving":
            return
        self.tell(f"FAULT {node.name} {node.rank(group)} of life {process.life} hangs")
        self.trouble.setdefault((group, process.life), f"{node.name} hung")
        process.state = "hung"
        self._survivors(node, group, process.life)
        self.at(self.now + self.draw(1.0, 20.0), lambda: node.result(node.rank(group), process, "acts", good=False))

    # what must hold

    def judge_start(self, node: Node, view: ComponentView) -> None:
        if view.name in node.processes and node.processes[view.name].state != "dead":
            self.broken(f"A: {view.name} starts over a living one on {node.name}")
        if view.name == "worker":
            record = node.world.groups[CACHE].record
            others = [o for o in self.store.ring if o != node.name]
            old = [
                o.name
                for o in self.nodes.values()
                if (p := o.processes.get("worker")) and p.state == "serving" and p.ring != self.store.board.store_id
            ]
            if old and not others and record.store != self.store.board.store_id and self.store.up:
                self.broken(f"D: the worker of {node.name} starts a second ring beside {', '.join(old)}")
            return
        group = group_of(view.name)
        n = node.world.groups[group].record.n
        for other in self.nodes.values():
            process = other.processes.get(other.rank(group))
            fenced = other.name in self.store.board.fences
            if process is not None and process.state != "dead" and process.life < n and not fenced:
                self.broken(f"A: {node.name} starts life {n} while {other.name} runs life {process.life}")

    def judge_stop(self, node: Node, view: ComponentView, cause: Cause) -> None:
        if view.name == "worker":
            return
        process, group = node.processes.get(view.name), group_of(view.name)
        whole = all(o.serves(group) for o in self.serving(group))
        if process is None or process.state != "serving" or not whole or self.meddled:
            return
        if (group, process.life) not in self.trouble:
            self.broken(f"E: {node.name} stops a rank of a serving group: {cause}")

    def judge_learning(self, node: Node, action: Action) -> None:
        """What a node has once known it does not forget for what a store has lost."""
        if action.record is not None and action.record.order < node.world.groups[action.target].record.order:
            self.broken(f"E: {node.name} takes {action.target} back to life {action.record.n}")
        before = node.world.intents.get(action.target)
        if action.intent is not None and before is not None and action.intent.seq < before.seq:
            self.broken(f"F: {node.name} forgets an operator's later word about {action.target}")

    def judge_swap(self, action: Action, move: GroupMove, before: Board) -> None:
        record = action.record
        assert record is not None
        if move in (GroupMove.PUT_BACK, GroupMove.FORGIVE):
            return
        for group in (action.target, *action.also):
            if any(i.paused for t, i in self.store.board.intents.items() if t in ("all", group)):
                self.broken(f"F: {move.value} of {group} while paused")
        for group, taken in action.also.items():
            there = before.records[group].record
            if there.stage is not Stage.GO or taken.n != there.n + 1 or taken.fails != there.fails:
                self.broken(f"B: {action.target} takes {group} along to {taken.n} from {there.n}/{there.stage.value}")
            self.trouble.setdefault((group, there.n), f"restarts with {action.target}")
        if move is GroupMove.GO:
            if action.target == CACHE:
                alive = [
                    o.name
                    for o in self.nodes.values()
                    if (p := o.processes.get("worker"))
                    and p.state != "dead"
                    and o.host_up
                    and o.name not in self.store.board.fences
                ]
                if alive:
                    self.broken(f"D: the datasystem's keys are deleted under the workers of {', '.join(alive)}")
            return
        self.bumps.append((self.now, action.target, record.n, str(record.cause)))
        old = record.n - 1
        excused = record.cause.reason is Reason.START_TIMEOUT and self.trouble
        excused = excused or record.cause.reason is Reason.STORE
        if record.cause.fault and (action.target, old) not in self.trouble and not excused:
            self.broken(f"B: {action.target} bumps to {record.n} without a fault: {record.cause}")

    def ends(self, group: str) -> str:
        """Where a group has come to rest; empty when that is no place to rest."""
        stored = self.store.board.records.get(group)
        if stored is None:
            return ""
        record = stored.record
        if record.stage is Stage.FAILED:
            return "failed"
        up = [n for n in self.nodes.values() if n.daemon_up]
        if record.stage is Stage.GO:
            name = "worker" if group == CACHE else None
            of = self.nodes.values() if group == CACHE else self.serving(group)
            kept = [n.processes.get(name or n.rank(group)) for n in of]
            return "serving" if all(p is not None and p.state == "serving" for p in kept) else ""
        if len(up) < len(self.names):
            return "waiting for an absent node"
        if group != CACHE and self.ends(CACHE) == "failed":
            return "waiting for the cache, which was given up"
        held = [m for m in self.store.board.phases(group).values() if m.phase is Phase.HELD]
        return "held" if held else ""
