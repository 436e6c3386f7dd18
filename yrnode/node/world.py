"""The facts of this node, and how a move changes them. No decisions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from yrnode.model.action import Action
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupKind, GroupMove
from yrnode.model.refusal import Refusal
from yrnode.model.snapshot import ComponentView, Failure, GroupView, Snapshot
from yrnode.model.spec import ComponentSpec
from yrnode.model.state import Move, State, after
from yrnode.model.verdict import Result, Tally
from yrnode.policy import health
from yrnode.policy.group import first_record

LONGEST_HISTORY = 20


@dataclass
class World:
    """Every component and group of this node as a frozen view that is replaced, never changed."""

    components: dict[str, ComponentView]
    groups: dict[str, GroupView] = field(default_factory=dict)
    store_available: bool = False
    store_since: float = 0.0
    store_id: str = ""
    store_refusal: Refusal | None = None
    closing: bool = False
    node: dict[str, Tally] = field(default_factory=dict)

    def snapshot(self, now: float, jitter: float = 0.0) -> Snapshot:
        return Snapshot(
            now,
            jitter,
            dict(self.components),
            dict(self.groups),
            self.store_available,
            self.store_since,
            self.store_id,
            self.closing,
            dict(self.node),
            self.store_refusal,
        )

    def update(self, name: str, **facts: object) -> ComponentView:
        self.components[name] = replace(self.components[name], **facts)  # type: ignore[arg-type]
        return self.components[name]

    def update_group(self, name: str, **facts: object) -> None:
        self.groups[name] = replace(self.groups[name], **facts)  # type: ignore[arg-type]

    def apply(self, action: Action, now: float) -> None:
        """Write down that a move is made. The caller performs it."""
        if isinstance(action.move, GroupMove):
            self._apply_group(action)
        else:
            self._apply_component(action.move, action, now)

    def _apply_group(self, action: Action) -> None:
        if action.move is GroupMove.CLEAR:
            return
        if action.record is None:
            raise ValueError(f"{action.move.value} of {action.target} without a record")
        self.update_group(action.target, record=action.record)
        if action.move is not GroupMove.GO:
            self.update_group(action.target, restart=None)

    def _apply_component(self, move: Move, action: Action, now: float) -> None:
        view = self.components[action.target]
        facts: dict[str, object] = {
            "state": after(view.state, move),
            "since": now,
            "cause": action.cause,
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
                    "gone": False,
                    "restart": None,
                }
            case Move.START:
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
                    "leaving": action.cause,
                    "restart": None,
                    "history": self._history(view, action.cause, now),
                }
            case Move.WAIT:
                facts |= {"deadline": now + action.delay, "pid": None, "instance": ""}
            case Move.REST | Move.GIVE_UP | Move.HOLD:
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
        tally = health.fold(before, result, now, spec)
        self.update(name, checks={**view.checks, check: tally})
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


def make(specs: Iterable[ComponentSpec], now: float) -> World:
    components = {s.name: ComponentView(s, State.STOPPED, now, checks=fresh_checks(s)) for s in specs}
    members: dict[str, list[str]] = {}
    for view in components.values():
        if view.spec.group is not None:
            members.setdefault(view.spec.group, []).append(view.name)
    groups = {name: GroupView(name, first_record(), tuple(m)) for name, m in members.items()}
    for view in components.values():
        name = view.spec.lives_with
        if name is not None:
            groups[name] = GroupView(name, first_record(), (view.name,), GroupKind.CACHE)
    return World(components, groups)


def at_rest(s: Snapshot) -> bool:
    """Whether nothing of this node runs or is about to."""
    return all(c.state is State.STOPPED for c in s.components.values())
