"""`yrnode drill` says what it will restart and asks, as every verb that changes something."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.api.fake import FakeNode, snapshot, view
from tests.cli.test_cli_daemon import api as api  # noqa: PLC0414  a fixture
from tests.cli.test_cli_daemon import file as file  # noqa: PLC0414  a fixture
from tests.cli.test_cli_daemon import next_line, started, yrnode
from tests.cli.test_cli_daemon import node as node  # noqa: PLC0414  a fixture
from yrnode.api.server import Api
from yrnode.cli import drill
from yrnode.model.cause import Cause, Reason
from yrnode.model.state import Plane, State

RADIUS: dict[str, Any] = {
    "verb": "drill",
    "drill": "kill",
    "target": "rank/serve/0",
    "components": ["rank/serve/1", "rank/serve/0"],
    "coupled": ["decode"],
    "untouched": ["etcd", "worker"],
    "groups": ["serve", "decode"],
    "nodes": ["n0", "n1", "n2"],
    "ranks": 8,
    "usual_s": 130.0,
}


def test_the_reach_in_words() -> None:
    assert drill.lines(RADIUS) == [
        "drill kill rank/serve/0: SIGKILL to the target's main process",
        "  restarts rank/serve/1, rank/serve/0; restarts with it: decode; leaves etcd, worker",
        "  in all: 8 ranks of serve, decode, on n0, n1, n2",
        "  until it is ready: usually 2m10s, once it is seen",
    ]
    assert drill.lines({**RADIUS, "usual_s": None})[-1] == "  until it is ready: not known, see yrnode events"


def test_the_data_of_the_store_and_the_daemon_in_words() -> None:
    store = drill.lines({**RADIUS, "drill": "store-empty", "target": "etcd"})
    assert store[0] == "drill store-empty etcd: etcd comes back without its data, which is kept beside"
    assert drill.lines({**RADIUS, "drill": "daemon-kill", "target": "yrnode", "nodes": ["n0"]})[:2] == [
        "drill daemon-kill yrnode: SIGKILL to yrnode itself; something must start it again",
        "  restarts nothing that runs; nobody heals it till yrnode runs again",
    ]


@pytest.mark.parametrize("words", [("kill", "worker"), ("store-empty",), ("daemon-kill",)], ids="-".join)
async def test_nothing_is_done_unasked(
    file: Path, node: FakeNode, api: Api, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, out, err = await yrnode("drill", *words, "--config", file)
    assert (code, node.asked) == (2, [])
    assert out.startswith(f"drill {words[0]} ")
    assert "  restarts " in out
    assert err.endswith("nobody is there to ask; add --yes\n")
    code, out, err = await yrnode("drill", *words, "--dry-run", "-o", "json", "--config", file)
    assert (code, node.asked, json.loads(out)["drill"], json.loads(out)["done"]) == (0, [], words[0], False)
    assert err.startswith(f"drill {words[0]} ")


async def test_a_no_is_heard(file: Path, node: FakeNode, api: Api) -> None:
    ours, theirs = pty.openpty()
    try:
        child = await started("drill", "kill", "worker", "--config", file, stdin=theirs)
        os.close(theirs)
        assert (await next_line(child)).startswith("drill kill worker: ")
        os.write(ours, b"n\n")
        _, err = await asyncio.wait_for(child.communicate(), 15)
        assert (child.returncode, node.asked) == (1, [])
        assert b"drill kill worker: not done" in err
    finally:
        os.close(ours)


async def test_a_stack_that_is_not_ready_is_left_alone(file: Path, node: FakeNode, api: Api) -> None:
    node.state = snapshot(view("worker", Plane.CACHE, State.STARTING))
    code, out, err = await yrnode("drill", "kill", "worker", "--yes", "--config", file)
    assert (code, out, node.asked) == (1, "", [])
    assert err == "a drill needs a stack that is ready; see yrnode status\n"


async def healed(node: FakeNode, *names: str, seen: str) -> None:
    """What the daemon would tell of a drill that restarts these."""
    while not node.asked:
        await asyncio.sleep(0.01)
    new = {n: replace(node.state.components[n], instance=f"{n} new") for n in names}
    node.events.emit(seen, "stop", Cause(Reason.EXITED, "exited"))
    node.state = replace(node.state, components={**node.state.components, **new})
    node.events.emit("yrnode", "ready", Cause(Reason.PROVEN, "READY"))


@pytest.mark.parametrize(
    ("names", "code", "limit"), [(("worker", "rank/serve/0"), 0, "20"), (("worker", "router"), 1, "1")]
)
async def test_what_must_restart_is_the_daemons_word(
    file: Path,
    node: FakeNode,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    code: int,
    limit: str,
) -> None:
    """A worker that takes its ranks along: without them the drill has not passed."""
    told = node.drill

    async def along(*words: Any) -> dict[str, Any]:
        return {**await told(*words), "untouched": ["etcd", "router"], "seen_at": ["worker"]}

    monkeypatch.setattr(node, "drill", along)
    words = ("drill", "kill", "worker", "--yes", "--why", "to see", "--limit", limit, "-o", "json", "--config", file)
    asked = asyncio.ensure_future(yrnode(*words))
    await asyncio.wait_for(healed(node, *names, seen="worker"), 30)
    found, out, _ = await asked
    result = json.loads(out)
    assert (found, result["passed"], result["restarted"]) == (code, not code, list(names))
    assert ",".join(result) == "drill,target,detected_ms,recovered_ms,restarted,untouched,passed,why"
    assert [(verb, target, why) for verb, target, _, why in node.asked] == [("drill-kill", "worker", "to see")]


async def test_a_daemon_is_killed_only_after_it_has_noted_who_does_it(
    file: Path, node: FakeNode, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, int]] = []
    # it is this very process that listens
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _, number: killed.append((number, len(node.asked))))
    words = ("drill", "daemon-kill", "--yes", "--why", "to see", "--limit", "0.1", "-o", "json", "--config", file)
    code, out, _ = await yrnode(*words)
    assert (code, killed) == (1, [(signal.SIGKILL, 1)])
    assert [(verb, target, why) for verb, target, _, why in node.asked] == [("drill-daemon-kill", "yrnode", "to see")]
    assert "nothing has started yrnode again" in json.loads(out)["why"]
