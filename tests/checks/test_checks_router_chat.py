"""What counts as a completion, and `verify` through a router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.etcd import free_port
from yrnode.checks import functional
from yrnode.checks.completion import judge
from yrnode.checks.functional import Finding, Report, RouterTarget, verify
from yrnode.model.verdict import Verdict
from yrnode.policy.hits import Counts

ONE = {"completion_tokens": 1}


def chat_of(content: str | None, reasoning: str | None = None, reason: str | None = "length") -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": ONE}


def without_usage(body: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in body.items() if k != "usage"}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, chat_of("hello"), Verdict.OK),
        # all of it is reasoning, or it is one token without text: the guides' probe calls both a failure
        (200, chat_of(None, "Let me"), Verdict.OK),
        (200, chat_of("", ""), Verdict.OK),
        (200, {"choices": [{"text": "", "finish_reason": "length"}], "usage": ONE}, Verdict.OK),
        (200, chat_of(None, None, "tool_calls"), Verdict.OK),
        (200, without_usage(chat_of(None)), Verdict.OK),
        (200, {**chat_of(None), "usage": None}, Verdict.OK),
        # a proxy before a dead decode rank
        (200, "", Verdict.FAIL),
        (200, {}, Verdict.FAIL),
        (200, {"choices": []}, Verdict.FAIL),
        (200, [], Verdict.FAIL),
        (200, without_usage(chat_of("hello", None, None)), Verdict.FAIL),
        (200, chat_of("hello", None, "abort"), Verdict.FAIL),
        (200, {**chat_of("hello"), "usage": {"completion_tokens": 0}}, Verdict.FAIL),
        (500, {"error": {"message": "EngineDeadError"}}, Verdict.FAIL),
        (401, {"error": "Unauthorized"}, Verdict.UNKNOWN),
        (404, {"error": {"message": "no such model"}}, Verdict.UNKNOWN),
    ],
)
def test_what_a_completion_through_a_router_is(status: int, body: Any, expected: Verdict) -> None:
    assert judge(status, body, by_router=True).verdict is expected


@dataclass
class Router:
    """Answers of its two routes, and what it was asked."""

    url: str
    chat: tuple[int, Any] = (200, None)
    text: tuple[int, Any] = (200, None)
    asked: list[tuple[str, str]] = field(default_factory=list)
    hangs: bool = False

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, request.headers.get("Authorization", "")))
        if self.hangs:
            await asyncio.sleep(60)
        status, body = self.chat if "chat" in request.path else self.text
        return web.json_response(body, status=status) if body is not None else web.Response(status=status)


@pytest_asyncio.fixture
async def router() -> AsyncIterator[Router]:
    port = free_port()
    found = Router(f"http://127.0.0.1:{port}")
    app = web.Application()
    app.router.add_post("/v1/chat/completions", found.answer)
    app.router.add_post("/v1/completions", found.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield found
    await runner.cleanup()


async def through(router: Router, key: str = "") -> Report:
    return await verify([], RouterTarget(router.url, "m", key))


async def test_a_chat_whose_content_is_null(router: Router) -> None:
    router.chat = (200, chat_of(None, "Let me"))
    report = await through(router, "secret")
    assert (report.good, report.router, report.as_dict()["router"]) == (True, "ok", "ok")
    assert router.asked == [("/v1/chat/completions", "Bearer secret")]


async def test_a_model_without_a_chat_template(router: Router) -> None:
    router.chat = (400, {"error": {"message": "no chat template"}})
    router.text = (200, {"choices": [{"text": "", "finish_reason": "length"}], "usage": ONE})
    assert (await through(router)).good


@pytest.mark.parametrize(
    ("chat", "words"),
    [((200, None), "no completion in it"), ((500, None), "HTTP 500"), ((401, {}), "not authorised")],
)
async def test_a_router_that_is_not_good(router: Router, chat: tuple[int, Any], words: str) -> None:
    router.chat = router.text = chat
    report = await through(router)
    assert not report.good
    assert words in report.router


async def test_a_router_that_never_answers_or_is_not_there(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "TIMEOUT_S", 0.3)
    router.hangs = True
    assert (await through(router)).router != "ok"
    router.url = f"http://127.0.0.1:{free_port()}"
    assert (await through(router)).router == "Connection refused"


def test_hit_rates_of_a_report() -> None:
    ranks = (
        Finding("a", "ok", "ok", external=True, counts=Counts(1000, 0, 1000, 500)),
        Finding("b", "ok", "ok", external=True, counts=Counts(3000, 3000, 0, 0)),
    )
    found = Report(ranks).as_dict()
    assert found["hit_rates"] == {"local": 0.75, "external": 0.5, "effective": 0.875}
    assert found["ranks"]["a"]["hit_rates"] == {"local": 0.0, "external": 0.5, "effective": 0.5}
    assert found["ranks"]["b"]["hit_rates"]["external"] is None
    assert (found["external_cache_hits"], found["good"], found["router"]) == (500, True, "not configured")
