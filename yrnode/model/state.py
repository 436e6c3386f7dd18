"""The states of a component and the moves between them, as data.

`TRANSITIONS` is the only place that says what may follow what. The policy asks for moves, the node performs them,
ARCHITECTURE.md's diagram is generated from it (`python -m yrnode.model.state`).
"""

from __future__ import annotations

from enum import Enum


class Plane(str, Enum):
    """What a component is for. The order is the order of start; stop goes the other way."""

    STORE = "store"
    CACHE = "cache"
    ENGINE = "engine"
    ROUTER = "router"

    @property
    def order(self) -> int:
        return _ORDER[self]


_ORDER = {plane: i for i, plane in enumerate(Plane)}


class State(str, Enum):
    STOPPED = "stopped"  # no process, and none wanted right now
    CLEANING = "cleaning"  # what an earlier instance left is being found and removed
    STARTING = "starting"  # a process runs that has not proven itself
    READY = "ready"  # proven to work, watched
    UNHEALTHY = "unhealthy"  # a check fails beyond its threshold
    STOPPING = "stopping"  # being ended, until nothing of the instance is left
    BACKOFF = "backoff"  # waits before the next attempt
    FAILED = "failed"  # given up, until an operator says restart


class Move(str, Enum):
    CLEAN = "clean"
    START = "start"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    RECOVER = "recover"
    STOP = "stop"
    REST = "rest"
    WAIT = "wait"
    GIVE_UP = "give-up"


_S, _M = State, Move

TRANSITIONS: dict[State, dict[Move, State]] = {
    _S.STOPPED: {_M.CLEAN: _S.CLEANING, _M.GIVE_UP: _S.FAILED, _M.STOP: _S.STOPPED},
    _S.CLEANING: {_M.START: _S.STARTING, _M.GIVE_UP: _S.FAILED, _M.STOP: _S.STOPPING},
    _S.STARTING: {_M.READY: _S.READY, _M.STOP: _S.STOPPING},
    _S.READY: {_M.UNHEALTHY: _S.UNHEALTHY, _M.STOP: _S.STOPPING},
    _S.UNHEALTHY: {_M.RECOVER: _S.READY, _M.STOP: _S.STOPPING},
    _S.STOPPING: {_M.REST: _S.STOPPED, _M.WAIT: _S.BACKOFF, _M.GIVE_UP: _S.FAILED, _M.STOP: _S.STOPPING},
    _S.BACKOFF: {_M.CLEAN: _S.CLEANING, _M.STOP: _S.STOPPED},
    _S.FAILED: {_M.CLEAN: _S.CLEANING, _M.REST: _S.STOPPED, _M.STOP: _S.STOPPED},
}

WITH_PROCESS = frozenset({State.STARTING, State.READY, State.UNHEALTHY, State.STOPPING})
"""States in which a process of the component may be alive."""

RUNNING = frozenset({State.STARTING, State.READY, State.UNHEALTHY})
"""States in which the component has a process that nobody is ending."""


def after(state: State, move: Move) -> State:
    """The state that follows, or ValueError for a move that the table does not have."""
    try:
        return TRANSITIONS[state][move]
    except KeyError:
        raise ValueError(f"no move {move.value} from {state.value}") from None


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> stopped"]
    for state, moves in TRANSITIONS.items():
        for move, target in moves.items():
            if target is not state:
                lines.append(f"    {state.value} --> {target.value}: {move.value}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram())
