"""What the verbs that change something make of the daemon's answers: words, exit codes, and how long they wait."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.api.fake import START, FakeNode
from tests.cli.test_cli_daemon import api as api  # noqa: PLC0414  a fixture
from tests.cli.test_cli_daemon import file as file  # noqa: PLC0414  a fixture
from tests.cli.test_cli_daemon import node as node  # noqa: PLC0414  a fixture
from tests.cli.test_cli_daemon import yrnode
from yrnode.api.server import Api
from yrnode.cli.main import VERBS, main, parser_of
from yrnode.model.errors import NotNow, UsageError
from yrnode.policy.intents import HEARD_EVERYWHERE_S
from yrnode.process.lock import NodeLock
from yrnode.telemetry.event_file import NAME, read_events

Said = Callable[..., tuple[int, str, str]]
FULL = "/state/wishes.json: No space left on device"


class Answers:
    """A client whose daemon takes all; `more` is what its answers have besides."""

    more: dict[str, Any] = {}  # noqa: RUF012  a test's own
    waits: list[float] = []  # noqa: RUF012

    def __init__(self, place: object, timeout: float = 5.0) -> None:
        self.waits.append(timeout)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        radius = {"verb": path.rpartition("/")[2], "target": body["target"], "components": ["worker"]}
        found = {**radius, "untouched": [], "quiet": True, "router": [], "others": [], "done": not body["dry_run"]}
        return found if body["dry_run"] else {**found, **self.more}

    def read(self, path: str) -> Any:
        if path.startswith("/status"):
            return {"node": "n0", "components": {"worker": {"state": "stopped"}}, "drain": None}
        return [{"seq": 1, "what": "drained", "text": "nothing was left"}]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*words: str, **more: Any) -> tuple[int, str, str]:
        made = type("Made", (Answers,), {"more": more, "waits": Answers.waits})
        for module in ("control", "drain"):
            monkeypatch.setattr(f"yrnode.cli.{module}.Client", made)
            monkeypatch.setattr(f"yrnode.cli.{module}.find", lambda args: None)
        Answers.waits.clear()
        code = main([*words, "--yes"])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_who_has_not_heard_it_is_named_and_waited_for(said: Said, verb: str) -> None:
    code, out, err = said(verb, absent=["n1", "n2"])
    assert (code, err) == (0, f"{verb}: not heard by n1, n2\n")
    assert f"{verb} all: taken" in out
    assert said("stop", "worker")[0] == 0
    assert max(Answers.waits) == 5.0
    assert said(verb, "worker")[0] == 0
    # the daemon looks up who asks, waits for the others, and answers
    assert min(Answers.waits) > HEARD_EVERYWHERE_S + 2


@pytest.mark.parametrize("words", [("stop", "worker"), ("pause",), ("drain",)], ids=lambda w: w[0])
def test_what_the_next_daemon_would_not_know_is_said_and_1(said: Said, words: tuple[str, ...]) -> None:
    code, _, err = said(*words, not_kept=FULL)
    assert code == 1
    assert err.startswith(f"{words[0]}: not kept: {FULL}; it holds, ")
    assert said(*words, not_kept="")[::2] == (0, "")
    code, out, err = said(*words, "-o", "json", not_kept=FULL)
    assert (code, json.loads(out)["not_kept"]) == (1, FULL)


def test_a_node_is_offered_only_where_it_is_taken() -> None:
    offered = {v: parser_of(v)._actions[1].help or "" for v in ("start", "stop", "restart", "pause", "resume")}
    assert {v for v, text in offered.items() if "a node, or all" in text} == {"start", "stop"}
    assert {v for v in offered if "a node" in VERBS[v][1]} == {"start", "stop"}
    assert "a node: stop, then start" in offered["restart"]


async def test_not_now_is_1_and_wrong_is_2(
    node: FakeNode, api: Api, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fault, code in ((NotNow("it goes down; say it again"), 1), (UsageError("no such thing"), 2)):

        async def refuse(*_: object, fault: Exception = fault) -> dict[str, Any]:
            raise fault

        monkeypatch.setattr(node, "control", refuse)
        assert await yrnode("stop", "worker", "--yes", "--config", file) == (code, "", f"{fault}\n")


async def cleaned(file: Path, *words: str) -> str:
    """What the command has printed, after something was there to be removed."""
    left = file.parent / "run" / "worker.json.unreadable-1"
    left.parent.mkdir(exist_ok=True)
    left.write_text("{")
    code, out, err = await yrnode("clean", "--config", file, *words)
    assert code in (0, 1), "what others have left counts"
    assert err == ""
    assert left.exists() is ("--dry-run" in words)
    return out


async def test_who_has_cleaned_up_what_is_an_event_of_the_daemon(node: FakeNode, api: Api, file: Path) -> None:
    with NodeLock(file.parent / "state"):
        await cleaned(file, "--dry-run")
        assert node.events.since(0) == []
        await cleaned(file, "--yes")
    (event,) = node.events.since(0)
    assert (event.target, event.what, event.reason) == ("yrnode", "operator-clean", "operator")
    assert f"(uid {os.geteuid()}, pid {os.getpid()}: " in event.text
    assert f"removed files {file.parent}/run/worker.json.unreadable-1" in event.text


async def test_and_without_a_daemon_of_its_file(node: FakeNode, file: Path) -> None:
    first = node.events.emit("worker", "stop", START)
    await cleaned(file, "--yes")
    before, event = read_events(file.parent / "state" / NAME, 10)
    assert before == first
    assert (event.seq, event.target, event.what) == (first.seq + 1, "yrnode", "operator-clean")
    assert "clean by " in event.text
    assert f"pid {os.getpid()}" in event.text
    assert "removed files " in event.text


async def test_a_daemon_that_cannot_be_told_is_said(file: Path) -> None:
    state, left = file.parent / "state", file.parent / "run" / "worker.json.unreadable-1"
    left.parent.mkdir()
    left.write_text("{")
    with NodeLock(state):
        _, _, err = await yrnode("clean", "--yes", "--config", file)
    assert not left.exists()
    assert err.startswith("clean: this is not in the events: ")
    assert not (state / NAME).exists()
