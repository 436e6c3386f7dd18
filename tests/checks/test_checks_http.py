"""A GET that must answer 200, and a completion that must have been generated."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from tests.checks.conftest import TARGET, tools
from tests.support.etcd import free_port
from yrnode.checks.completion import CompletionCheck, judge
from yrnode.checks.http import HttpCheck, reason
from yrnode.checks.kinds import KINDS, make
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[..., Awaitable[str]]


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server with one handler for every path; its URL."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler, context: ssl.SSLContext | None = None) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        return f"{'https' if context else 'http'}://127.0.0.1:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()


async def get(http: aiohttp.ClientSession, url: str) -> Result:
    check = HttpCheck(CheckSpec("health", "http", 1.0, 1.0, params={"url": url}), tools(http))
    return await check.probe(TARGET)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(200, "ok"), (204, "fail"), (302, "fail"), (404, "fail"), (500, "fail"), (503, "fail")],
)
async def test_only_200_is_good(http: aiohttp.ClientSession, serve: Serve, status: int, verdict: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        # a redirect would lead to a 200
        if request.path == "/other":
            return web.Response()
        return web.Response(status=status, headers={"Location": "/other"})

    url = await serve(handler) + "/health"
    result = await get(http, url)
    assert result.verdict.value == verdict
    assert result.evidence == (f"{url}: 200" if verdict == "ok" else f"{url}: HTTP {status}")


async def test_nobody_listens(http: aiohttp.ClientSession) -> None:
    url = f"http://127.0.0.1:{free_port()}/health"
    result = await get(http, url)
    assert (result.verdict, result.evidence) == (Verdict.FAIL, f"{url}: Connection refused")


async def test_somebody_hangs_up(http: aiohttp.ClientSession, serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    result = await get(http, await serve(handler))
    assert result.verdict is Verdict.FAIL
    assert len(result.evidence) < 200


async def test_an_unknown_host(http: aiohttp.ClientSession) -> None:
    result = await get(http, "http://no-such-host.invalid/health")
    assert result.verdict is Verdict.FAIL
    assert "Unknown error" not in result.evidence


@pytest.fixture(scope="session")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    where = tmp_path_factory.mktemp("tls")
    key, cert = where / "key.pem", where / "cert.pem"
    words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=rank", "-days", "1"]
    argv = ["openssl", "req", "-x509", *words, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


async def test_a_rank_with_a_certificate_of_its_own(
    http: aiohttp.ClientSession, serve: Serve, own_certificate: ssl.SSLContext
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(GOOD) if request.method == "POST" else web.Response()

    url = await serve(handler, own_certificate)
    assert (await get(http, f"{url}/health")).verdict is Verdict.OK
    assert (await complete(http, url)).verdict is Verdict.OK


# a completion

GOOD = {"choices": [{"text": "", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}


def answer(**facts: Any) -> dict[str, Any]:
    return {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": 1}} | facts


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, GOOD, "ok"),
        (200, answer(choices=[{"text": "x", "finish_reason": "stop"}]), "ok"),
        (200, answer(choices=[{"finish_reason": None}]), "fail"),
        (200, answer(choices=[{"finish_reason": "abort"}]), "fail"),
        (200, answer(choices=[]), "fail"),
        (200, answer(usage={"completion_tokens": 0}), "fail"),
        (200, answer(usage=None), "fail"),
        (200, answer(usage={}), "fail"),
        (200, "", "fail"),
        (200, "text", "fail"),
        (200, [], "fail"),
        (200, None, "fail"),
        # it is about us, not about the engine
        (401, {"error": "Unauthorized"}, "unknown"),
        (403, "", "unknown"),
        (400, {"error": {"message": "too long"}}, "unknown"),
        (404, {"error": {"message": "The model `x` does not exist."}}, "unknown"),
        (405, "", "unknown"),
        (422, {}, "unknown"),
        (501, {"detail": "not supported"}, "unknown"),
        (500, {"error": {"message": "EngineCore encountered an issue."}}, "fail"),
        (502, "<html>", "fail"),
        (503, "", "fail"),
    ],
)
def test_what_an_answer_proves(status: int, body: Any, verdict: str) -> None:
    result = judge(status, body)
    assert result.verdict.value == verdict
    assert "\n" not in result.evidence


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "EngineCore  encountered\nan issue."}}, "HTTP 500: EngineCore encountered an issue."),
        ({"error": "plain"}, "HTTP 500: plain"),
        ({"object": "error", "message": "old style"}, "HTTP 500: old style"),
        ("x " * 1000, "HTTP 500: " + "x " * 79 + "…"),
    ],
)
def test_the_servers_own_words_are_the_evidence(body: Any, words: str) -> None:
    assert judge(500, body).evidence == f"completion: {words}"


def test_good_evidence() -> None:
    assert judge(200, GOOD).evidence == "completion: 1 token, finish_reason length"


async def complete(http: aiohttp.ClientSession, url: str, key: str = "") -> Result:
    params = {"url": url, "model": "demo", "key": key}
    check = CompletionCheck(CheckSpec("canary", "completion", 1.0, 1.0, params=params), tools(http))
    return await check.probe(TARGET)


async def test_what_is_asked(http: aiohttp.ClientSession, serve: Serve) -> None:
    seen: list[tuple[str, str | None, dict[str, Any]]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("Authorization"), await request.json()))
        return web.json_response(GOOD)

    url = await serve(handler)
    for key in ("", "secret"):
        assert (await complete(http, f"{url}/prefix", key)).verdict is Verdict.OK
    (path, none, first), (_, bearer, second) = seen
    assert (path, none, bearer) == ("/prefix/v1/completions", None, "Bearer secret")
    assert (first["model"], first["max_tokens"]) == ("demo", 1)
    assert "stream" not in first
    assert first["prompt"] != second["prompt"], "a prompt that was seen before proves only a cache"


async def test_an_answer_that_is_no_json(http: aiohttp.ClientSession, serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="<html>proxy</html>", content_type="text/html")

    result = await complete(http, await serve(handler))
    assert (result.verdict, "<html>proxy" in result.evidence) == (Verdict.FAIL, True)


async def test_no_answer_at_all(http: aiohttp.ClientSession) -> None:
    result = await complete(http, f"http://127.0.0.1:{free_port()}")
    assert (result.verdict, result.evidence) == (Verdict.FAIL, "completion: Connection refused")


def test_reasons_are_short() -> None:
    assert reason(aiohttp.ServerDisconnectedError()) == "Server disconnected"
    assert reason(aiohttp.ClientError()) == "ClientError"
    assert len(reason(aiohttp.ClientPayloadError("x" * 1000))) <= 200
    assert reason(ConnectionResetError(104, "Connection reset by peer")) == "Connection reset by peer"


async def test_every_kind_can_be_made() -> None:
    for kind in KINDS:
        check = make(CheckSpec("x", kind, 1.0, 1.0), tools())
        await check.close()
    with pytest.raises(KeyError):
        make(CheckSpec("x", "no-such", 1.0, 1.0), tools())
