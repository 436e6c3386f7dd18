"""What is done to the stack in a soak: drills, operators' words, and ends of the daemon; each with its contract."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bench.soak_judge import Contract, changed
from bench.soak_stack import GROUPS, Node

LIMIT_S = 240.0
PAUSED_S = 5.0
RANKS = {g: frozenset(f"rank/{g}/{i}" for i in range(n)) for g, n in GROUPS.items()}
GROUP_OF = {rank: g for g, ranks in RANKS.items() for rank in ranks}
ALL_RANKS = frozenset(GROUP_OF)
CACHE = "cache"


class Interrupted(Exception):
    """The operator of the soak wants it to end."""


@dataclass(frozen=True)
class Action:
    """`run(node)` does it and returns what it measured, with `broken`: what it saw go wrong itself."""

    name: str
    contract: Contract
    run: Callable[[Node], dict[str, Any]]
    ends_daemon: bool = False


def group(name: str) -> Contract:
    return Contract(RANKS[name], frozenset({name}), RANKS[name])


def of(target: str) -> Contract:
    """A single component's restart, or that of a rank's group."""
    return group(GROUP_OF[target]) if target in GROUP_OF else Contract(frozenset({target}))


def actions() -> list[Action]:
    """One of each kind and target; a soak does each once before any again."""
    found = [_drill("kill", t) for t in ("etcd", "worker", "rank/serve/0", "rank/serve/1", "rank/second/0")]
    found += [_drill("freeze", t) for t in ("etcd", "worker", "rank/serve/1")]
    found += [_drill("hang", t) for t in ("rank/serve/0", "rank/second/0")]
    found += [
        _drill("store-down", "etcd"),
        Action(
            "drill store-empty etcd",
            Contract(frozenset({"etcd", "worker"}), frozenset({CACHE})),
            lambda node: _run_drill(node, "store-empty", "etcd"),
        ),
        Action(
            "drill daemon-kill",
            Contract(new_daemon=True),
            lambda node: _run_drill(node, "daemon-kill", ""),
            ends_daemon=True,
        ),
    ]
    found += [_word("restart", t, of(t)) for t in ("etcd", "worker", "rank/second/0")]
    found += [_word("restart", "serve", group("serve"))]
    found += [_stop_start(t) for t in ("second", "worker")]
    found += [_paused(t) for t in ("worker", "rank/second/0")]
    unseen = replace(group("second"), new_daemon=True)
    found += [
        Action("detach and start again", Contract(new_daemon=True), _detach, ends_daemon=True),
        Action("a rank dies without a daemon", unseen, _dies_unseen, ends_daemon=True),
    ]
    return found


def _drill(name: str, target: str) -> Action:
    return Action(f"drill {name} {target}", of(target), lambda node: _run_drill(node, name, target))


def _run_drill(node: Node, name: str, target: str) -> dict[str, Any]:
    done = node.cli(
        "drill", name, *filter(None, [target]), "--yes", "--limit", str(LIMIT_S), "-o", "json", timeout=LIMIT_S + 60
    )
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return {"broken": [f"the drill said: {done.stderr.strip()[-500:]} (exit {done.returncode})"]}
    found = {"seen_ms": result["detected_ms"], "healed_ms": result["recovered_ms"]}
    return {**found, "broken": [] if result["passed"] else [f"the drill failed: {result['why']}"]}


def _word(verb: str, target: str, contract: Contract) -> Action:
    return Action(f"{verb} {target}", contract, lambda node: {"broken": _said(node, verb, target)})


def _said(node: Node, verb: str, target: str) -> list[str]:
    done = node.cli(verb, target, "--yes", timeout=60)
    return [] if done.returncode == 0 else [f"yrnode {verb} {target}: exit {done.returncode}: {done.stderr[-500:]}"]


def _stop_start(target: str) -> Action:
    names = RANKS.get(target, frozenset({target}))

    def run(node: Node) -> dict[str, Any]:
        found = _said(node, "stop", target)
        stopped = _until(lambda: all(node.component(n).get("state") == "stopped" for n in names))
        found += [] if stopped else [f"{target} did not stop"]
        return {"broken": found + _said(node, "start", target)}

    # a group's stop and its start are a life each
    contract = replace(group(target), lives=2) if target in RANKS else of(target)
    return Action(f"stop and start {target}", contract, run)


def _paused(target: str) -> Action:
    """Hands off: what dies is not started again before the word to resume."""

    def run(node: Node) -> dict[str, Any]:
        before = node.status()
        found = _said(node, "pause", "all")
        try:
            node.client.post("/control/drill-kill", {"target": target})
            dead = _until(lambda: node.component(target).get("state") not in ("ready", None))
            found += [] if dead else [f"the death of {target} was not seen while paused"]
            time.sleep(PAUSED_S)
            now = node.status()
            begun = [n for n in sorted(changed(before, now)) if now["components"].get(n, {}).get("pid")]
            found += [f"{n} was begun while everything was paused" for n in begun]
        finally:
            found += _said(node, "resume", "all")
        return {"broken": found}

    return Action(f"paused, {target} is killed, resumed", of(target), run)


def _detach(node: Node) -> dict[str, Any]:
    """The daemon ends and leaves everything running; the next one takes over."""
    found: list[str] = []
    assert node.process is not None
    node.process.send_signal(signal.SIGUSR1)
    code = node.process.wait(60)
    if code != 0:
        found.append(f"the daemon ended with {code}")
    node.again()
    return {"broken": found}


def _dies_unseen(node: Node) -> dict[str, Any]:
    """A rank dies while no daemon runs: the next one sees an ordinary death."""
    pid = node.pids()["rank/second/0"]
    node.keep = False
    try:
        node.kill()
        os.kill(pid, signal.SIGKILL)
    finally:
        node.again()
        node.keep = True
    return {"broken": []}


def _until(condition: Callable[[], bool], seconds: float = 90.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False
