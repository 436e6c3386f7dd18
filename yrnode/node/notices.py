"""Events for what acts on nothing by itself, when it begins and when it is over: checks that only observe or need
another one, starts that take far longer than usual, and nodes that speak another protocol."""

from __future__ import annotations

from yrnode.model.cause import Cause, Reason
from yrnode.model.snapshot import ComponentView, Snapshot
from yrnode.model.state import State
from yrnode.model.verdict import Verdict
from yrnode.policy import protocol, usual
from yrnode.telemetry.events import EventLog

JUDGED = (State.READY, State.UNHEALTHY)
LATE = "late"


class Notices:
    """`look` once a round. What a check that acts leads to has events of its own."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._told: set[tuple[str, str, str]] = set()
        self._protocol = ""

    def look(self, s: Snapshot) -> None:
        for view in s.components.values():
            for check in view.spec.checks:
                if view.state in JUDGED and (check.witness or not check.act):
                    self._compare(view, check.name)
            self._compare_start(view, s)
        self._compare_protocols(s)
        alive = {c.instance for c in s.components.values()}
        self._told = {key for key in self._told if key[1] in alive}

    def _compare(self, view: ComponentView, check: str) -> None:
        tally, key = view.checks[check], (view.name, view.instance, check)
        if tally.failing and key not in self._told:
            self._told.add(key)
            self._say(view, "check-failed", Cause(Reason.CHECK, f"check {check} fails", tally.result.evidence))
        elif key in self._told and not tally.failing and tally.result.verdict is Verdict.OK:
            self._told.remove(key)
            self._say(view, "check-passed", Cause(Reason.RECOVERED, f"check {check} passes", tally.result.evidence))

    def _compare_start(self, view: ComponentView, s: Snapshot) -> None:
        progress, key = usual.of_component(view, s), (view.name, view.instance, LATE)
        if progress is None or not progress.late or key in self._told:
            return
        self._told.add(key)
        text = (
            f"has been starting for {progress.elapsed_s:.0f} s, usually {progress.usual_s:.0f} s; it is left to start"
        )
        self._say(view, LATE, Cause(Reason.CHECK, text, progress.doing))

    def _compare_protocols(self, s: Snapshot) -> None:
        now = protocol.told(s)
        if now != self._protocol:
            over = Cause(Reason.RECOVERED, "all nodes that are there speak the same protocol")
            self._events.emit("yrnode", "protocol", Cause(Reason.CHECK, now) if now else over)
        self._protocol = now

    def _say(self, view: ComponentView, what: str, cause: Cause) -> None:
        self._events.emit(view.name, what, cause, instance=view.instance, generation=view.generation)
