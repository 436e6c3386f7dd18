"""Random histories of one node, and what must hold in every one of them.

The decisions and the facts are the real ones (`policy`, `node.world`, `node.operator`: all pure). Made up are the
processes, how long things take, and what befalls them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from hypothesis import Phase as Effort
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.policy.build import PLANES, RANKS, spec
from yrnode.model.action import Action
from yrnode.model.board import Board, BoardMove
from yrnode.model.cause import FAULTS, Cause, Reason
from yrnode.model.group import GroupMove, Phase, Stage
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import RUNNING, TRANSITIONS, WITH_PROCESS, Move, Plane, State
from yrnode.model.verdict import fail, ok
from yrnode.node import operator, world
from yrnode.policy import component, plan
from yrnode.policy.restart import RestartPolicy

POLICY = RestartPolicy()
PORT = Cause(Reason.RESIDUE, "port 1 is not free")
NAMES = st.sampled_from(list(PLANES))
VERBS = st.sampled_from(["start", "start", "stop", "restart"])
PAUSES = st.sampled_from([0.001, 0.5, 3.0, 15.0, 70.0, 650.0, 2000.0])


class Node(RuleBasedStateMachine):
    """`alive`: the generation of each process that exists. `task`: what a component's task is busy with."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.world = world.make([spec(name) for name in PLANES], self.now)
        self.alive: dict[str, int] = {}
        self.task: dict[str, str] = {}
        self.instances = 0
        self.revision = 0
        self.world.board = Board(store_id="uuid")
        self.rounds: int | None = None
        self.blocked: set[str] = set()
        self.fault_bumps: set[int] = set()
        self.retries: dict[str, list[float]] = defaultdict(list)
        self.settle()

    # what happens to a node

    @rule(rounds=st.integers(0, 3))
    def the_next_two_facts_come_close_together(self, rounds: int) -> None:
        self.rounds = rounds

    @rule(pause=PAUSES)
    def time_passes(self, pause: float) -> None:
        self.now += pause
        self.settle()

    @rule(name=NAMES)
    def a_task_ends(self, name: str) -> None:
        self.finish(name)
        self.settle()

    @rule(names=st.sets(NAMES, max_size=2))
    def something_gets_in_the_way_of(self, names: set[str]) -> None:
        self.blocked = names

    @rule(name=NAMES)
    def it_proves_itself(self, name: str) -> None:
        self.result(name, "gate", good=True)
        self.settle()

    @rule(steps=st.integers(1, 14))
    def everything_gets_on(self, steps: int) -> None:
        for _ in range(steps):
            self.now += 0.1
            self.get_on("gate")

    @rule(name=NAMES, times=st.integers(1, 7))
    def it_dies_again_and_again(self, name: str, times: int) -> None:
        for _ in range(times):
            self.everything_gets_on(14)
            self.it_dies(name, Reason.EXITED)
            self.now += 10.0

    @rule(name=NAMES, check=st.sampled_from(["acts", "observes"]), good=st.booleans())
    def a_check_speaks(self, name: str, check: str, good: bool) -> None:
        for _ in range(3):
            self.result(name, check, good)
        self.settle()

    @rule(name=NAMES, reason=st.sampled_from([Reason.EXITED] * 4 + [Reason.CONFIGURATION]))
    def it_dies(self, name: str, reason: Reason) -> None:
        if self.alive.pop(name, None) is None or self.view(name).death is not None:
            return
        group = self.world.groups["serve"]
        n, state = group.record.n, self.view(name).state
        due = name in RANKS and state in RUNNING and group.wanted and group.record.stage is Stage.GO
        due = due and self.world.store_available
        self.world.update(name, death=Cause(reason, "exited", "", name))
        self.rounds = None
        self.settle()
        if due:
            assert self.world.groups["serve"].record.n == n + 1, "one fault, one bump"

    @rule(up=st.booleans())
    def the_store(self, up: bool) -> None:
        self.world.store_available = up and "etcd" in self.alive
        self.settle()

    @precondition(lambda self: not self.world.closing)
    @rule(verb=VERBS, whom=st.sampled_from(["all", "serve", *PLANES]))
    def an_operator_says(self, verb: str, whom: str) -> None:
        operator.carry_out(self.world, verb, whom, Cause(Reason.OPERATOR, f"{verb} {whom}"))
        self.settle()

    @precondition(lambda self: not self.world.closing and self.now > 3000)
    @rule()
    def yrnode_goes_down(self) -> None:
        operator.shut_down(self.world)
        self.settle()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if not self.world.closing:
            self.faults_stop()
        self.everything_stops()

    def faults_stop(self) -> None:
        operator.carry_out(self.world, "start", "all", Cause(Reason.OPERATOR, "start all"))
        self.rounds, self.blocked = None, set()
        for _ in range(40):
            self.now += 20.0
            self.get_on("gate", "acts", "observes")
        s = self.snapshot()
        for name, c in s.components.items():
            waits = component.waits_for(c, s)
            if c.state is State.FAILED:
                assert c.cause is not None
                assert c.cause.text
            elif c.state is not State.READY:
                # it ends by waiting for something that was given up, which it names
                assert waits, f"{name} is {c.state.value} for no reason"
                assert any(o.state is State.FAILED for o in s.components.values())
        stages = {self.view(name).state for name in RANKS}
        assert len(stages) == 1, "a group is up or down as a whole"

    def everything_stops(self) -> None:
        operator.shut_down(self.world)
        self.rounds = None
        for _ in range(40):
            self.now += 20.0
            self.get_on("gate")
        assert world.at_rest(self.snapshot())
        assert not self.alive

    def get_on(self, *checks: str) -> None:
        """Every task ends well, and every process passes these checks."""
        for name in PLANES:
            self.finish(name)
            for check in checks:
                self.result(name, check, good=True)
        self.world.store_available = "etcd" in self.alive
        self.settle()

    # how a node works

    def view(self, name: str) -> ComponentView:
        return self.world.components[name]

    def snapshot(self) -> Snapshot:
        return self.world.snapshot(self.now, 0.5)

    def finish(self, name: str) -> None:
        match self.task.pop(name, ""):
            case "clean":
                blocked = PORT if name in self.blocked else None
                self.world.update(name, cleaned=blocked is None, blocked=blocked)
            case "stop":
                self.alive.pop(name, None)
                self.world.update(name, gone=True)

    def result(self, name: str, check: str, good: bool) -> None:
        if name in self.alive:
            found = ok("fine") if good else fail("bad")
            self.world.record_result(name, self.view(name).instance, check, found, self.now)

    def settle(self) -> None:
        """Rounds until nothing is left to do, or as many as fit. A node that never comes to rest fails here."""
        rounds, self.rounds = self.rounds, None
        for _ in range(30 if rounds is None else rounds):
            self.world.fresh = self.world.store_available
            s = self.snapshot()
            actions = plan.decide(s)
            if not actions:
                return
            moves = [a.target for a in actions if not isinstance(a.move, BoardMove)]
            assert len(set(moves)) == len(moves)
            for action in actions:
                self.judge(action, s)
                self.world.apply(action, self.now)
                if isinstance(action.move, Move):
                    self.perform(action.move, action.target)
                elif action.move is not GroupMove.LEARN:
                    self.write(action)
        assert rounds is not None, f"no rest: {actions}"

    def write(self, action: Action) -> None:
        """The store of a node that is alone: every swap is done at once."""
        self.revision += 1
        board = self.world.board
        if action.record is not None:
            board = board.with_record(action.target, action.record, self.revision)
        elif action.member is not None:
            if action.member.phase is Phase.CLEAN:
                self.world.update_group(action.target, cleaned=action.member.n)
            board = board.with_member(action.target, "n0", action.member)
        elif action.intent is not None:
            board = replace(board, intents={**board.intents, action.target: action.intent})
        self.world.take_board(board, self.now)

    def perform(self, move: Move, name: str) -> None:
        match move:
            case Move.CLEAN:
                assert name not in self.task, "two tasks of one component at a time"
                self.task[name] = "clean"
            case Move.START:
                assert name not in self.alive, "started on top of a living process"
                self.instances += 1
                self.alive[name] = self.view(name).generation
                self.world.update(name, instance=f"i{self.instances}", pid=self.instances)
            case Move.STOP if self.view(name).state is State.STOPPING:
                self.task[name] = "stop"

    # what must hold

    def judge(self, action: Action, s: Snapshot) -> None:
        assert action.cause.text
        if not isinstance(action.move, Move):
            self.judge_group(action, s)
            return
        c = s.components[action.target]
        assert action.move in TRANSITIONS[c.state]
        match action.move:
            case Move.START:
                self.judge_start(c, s)
            case Move.STOP:
                self.judge_stop(c, action.cause, s)
            case Move.REST | Move.GIVE_UP | Move.WAIT if c.state is State.STOPPING:
                assert c.name not in self.task, "at rest before its stop has ended"
                assert c.name not in self.alive
        if action.move is Move.WAIT:
            self.count_retry(c)

    def judge_start(self, c: ComponentView, s: Snapshot) -> None:
        for o in s.components.values():
            if o.plane.order < c.plane.order:
                assert o.state is State.READY, f"{c.name} starts over {o.name}, which is {o.state.value}"
        assert c.plane is Plane.STORE or s.store_available
        if c.name not in RANKS:
            return
        record = self.world.groups["serve"].record
        assert record.stage is Stage.GO
        for other in RANKS:
            # the record and the processes as they are now, not as they were when this was decided
            assert self.alive.get(other, record.n) == record.n
            if self.view(other).state in WITH_PROCESS:
                assert self.view(other).generation == record.n

    def judge_stop(self, c: ComponentView, cause: Cause, s: Snapshot) -> None:
        above = [o for o in s.components.values() if o.plane.order > c.plane.order]
        if s.closing and c.state in RUNNING and cause.reason is Reason.SHUTDOWN:
            assert not any(o.state in WITH_PROCESS for o in above), "what is above it still needs it"
        if cause.reason in FAULTS and c.state in RUNNING:
            culprit = s.components[cause.component or c.name]
            assert culprit is c or culprit.spec.group == c.spec.group, "stopped for another one's fault"
        if c.plane is Plane.CACHE and cause.reason is Reason.CHECK:
            assert s.store_available
            assert s.components["etcd"].state is State.READY

    def judge_group(self, action: Action, s: Snapshot) -> None:
        record = action.record
        if record is None or action.move in (GroupMove.LEARN, GroupMove.PUT_BACK, GroupMove.FORGIVE):
            return
        group = s.groups[action.target]
        if action.move is GroupMove.GO:
            assert (record.n, record.stage) == (group.record.n, Stage.GO)
            assert not any(name in self.alive for name in RANKS)
            return
        assert record.n == group.record.n + 1
        if record.cause.fault:
            assert group.record.n not in self.fault_bumps, "two bumps for one life"
            self.fault_bumps.add(group.record.n)
            culprit = s.components[record.cause.component]
            assert culprit.name in RANKS
            assert culprit.generation == group.record.n
            late = culprit.deadline is not None and self.now >= culprit.deadline
            ended = culprit.leaving is not None and culprit.leaving.fault
            assert culprit.death or culprit.checks["acts"].failing or late or ended

    def count_retry(self, c: ComponentView) -> None:
        row = self.retries[c.name]
        if len(c.history) == 1 or c.history[-1].ready_for >= POLICY.forgive_after_s:
            row.clear()
        row.append(self.now)
        assert sum(self.now - at <= POLICY.window_s for at in row) <= POLICY.budget


Node.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    # making a failing history shorter takes minutes; take this out for it
    phases=(Effort.generate,),
)
TestHistories: Any = Node.TestCase
